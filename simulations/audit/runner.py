"""Runs requests one after the other, with progress, and keeps what is done when it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from veilsum.roles.progress import Progress
from veilsum.simulations.attacks.common import one_thread
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows import Row
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.verdicts import verdicts, warnings


@dataclass
class Outcome:
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    def figures(self) -> dict[str, Any]:
        return {
            "complete": not self.interrupted,
            "rows": [row.figures() for row in self.rows],
            "verdicts": [vars(one) for one in verdicts(self.rows)],
            "warnings": [*warnings(self.rows), *self.notes],
        }


def references(request: Request, outcome: Outcome, shared: bool) -> bool:
    """Whether this request has to make its undefended, null and oracle rows itself.

    They attack the same clean gradients whatever the scheme and the defence: once per attack is enough.
    """
    made = any(row.row == "null" and row.attack == request.attack for row in outcome.rows)
    return not (shared and made)


def rows_of(request: Request, steps: Steps) -> Iterator[Row]:
    """The rows of one request, by the kind of its attack."""
    kind = request.entry.kind
    if kind == "gradient":
        from veilsum.simulations.audit.gradient import gradient_rows

        return gradient_rows(request, steps)
    if kind == "rounds":
        from veilsum.simulations.audit.repeated import repeated_rows

        return repeated_rows(request, steps)
    if kind == "model":
        from veilsum.simulations.audit.models import model_rows

        return model_rows(request, steps)
    if kind == "membership":
        from veilsum.simulations.audit.members import membership_rows

        return membership_rows(request, steps)
    if kind in ("generative", "gmi"):
        from veilsum.simulations.audit.generators import generative_rows, gmi_rows

        return generative_rows(request, steps) if kind == "generative" else gmi_rows(request, steps)
    if kind == "perturbation":
        from veilsum.simulations.audit.perturbation import perturbation_rows

        return perturbation_rows(request, steps)
    raise AssertionError(f"no experiment for attacks of kind {kind}")


def run_requests(requests: Sequence[Request], *, progress: bool = False, shared: bool = False) -> Outcome:
    """All rows of all requests; Ctrl-C ends early and keeps the rows done so far.

    With `shared`, a reference row that an earlier request has made already is not made again.
    """
    outcome = Outcome()
    steps = Steps(len(requests), Progress("audit", 100) if progress else None)
    try:
        with one_thread():
            for request in requests:
                asked = replace(request, references=references(request, outcome, shared))
                for row in rows_of(asked, steps):
                    outcome.rows.append(row)
                steps.next_request()
    except KeyboardInterrupt:
        outcome.interrupted = True
    steps.close()
    return outcome
