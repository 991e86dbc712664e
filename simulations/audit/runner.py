"""Runs requests on one or several processes, with progress, and keeps what is done when it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from veilsum.roles.cli.progress import Progress
from veilsum.simulations.audit.experiments import rows_of
from veilsum.simulations.audit.fits import require_fit
from veilsum.simulations.audit.pool import AuditJob, collect
from veilsum.simulations.audit.report.verdicts import verdicts, warnings
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.steps import Steps


@dataclass(repr=False)
class Outcome:
    """The rows of an audit, and what is to be said besides."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    others: list[Any] = field(default_factory=list, repr=False)
    """What jobs other than requests gave, in their order."""
    failed: list[str] = field(default_factory=list)
    """What was to be attacked, too, and could not be, with the reason."""
    matrix: list[dict[str, str]] | None = None
    """Who learns what, if it was condensed: a line for each adversary."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.rows)} rows, {len(self.notes) + len(self.failed)} notes)"

    def add(self, other: Outcome) -> None:
        """What came out of a further part of the same run."""
        self.rows += other.rows
        self.notes += other.notes
        self.interrupted |= other.interrupted

    def figures(self) -> dict[str, Any]:
        return {
            "complete": not self.interrupted,
            "rows": [row.figures() for row in self.rows],
            "verdicts": [vars(one) for one in verdicts(self.rows)],
            "warnings": [*warnings(self.rows), *self.notes, *self.failed],
            **({"matrix": self.matrix} if self.matrix is not None else {}),
        }


@dataclass(frozen=True)
class RequestJob:
    request: Request

    @property
    def bundle(self) -> str:
        """The same attack under the same protection meets the same federation, and often the same gradients."""
        return (
            self.request.entry.bundle or f"{self.request.scheme} {self.request.defence} {self.request.attack}"
        )

    @property
    def heavy(self) -> bool:
        return self.request.entry.heavy

    def items(self, steps: Steps) -> Iterator[Row]:
        return rows_of(self.request, steps)


def share_references(requests: Sequence[Request]) -> list[Request]:
    """Only the first request of each attack and batch makes the undefended, null and oracle rows.

    They attack the same clean gradients whatever the scheme and the defence: once is enough.
    """
    seen: set[tuple[str, int]] = set()
    asked = []
    for request in requests:
        asked.append(replace(request, references=(request.attack, request.images) not in seen))
        seen.add((request.attack, request.images))
    return asked


def run_requests(
    requests: Sequence[Request],
    *,
    progress: bool = False,
    shared: bool = False,
    workers: int = 1,
    also: Sequence[AuditJob] = (),
) -> Outcome:
    """All rows of all requests, in their order; Ctrl-C ends early and keeps the rows done so far.

    With `shared`, a reference row that an earlier request makes is not made again. `also` are other jobs of the same
    run. Everything that can be refused is refused before the first job starts.
    """
    for request in requests:
        require_fit(request)
    asked = share_references(requests) if shared else requests
    jobs: list[AuditJob] = [*map(RequestJob, asked), *also]
    found, interrupted = collect(jobs, workers, Progress("audit", 100) if progress else None)
    return Outcome(
        rows=[row for rows in found[: len(asked)] for row in rows],
        interrupted=interrupted,
        others=[item for items in found[len(asked) :] for item in items],
    )
