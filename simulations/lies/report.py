"""What became of a lie, as figures and as text; and all lies as a table.

Implements specs/lies.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId, shown_number
from veilsum.roles.cli.output import Table
from veilsum.simulations.lies.lie import Lie
from veilsum.simulations.lies.registry import LIES, schemes_of

COLUMNS = ("name", "schemes", "what the liar does", "what becomes of it")


@dataclass(frozen=True)
class Noticed:
    """What one honest party found, and whom it blames; nobody, where it cannot tell."""

    party: PartyId
    reason: AbortReason
    culprit: str
    detail: str

    def figures(self) -> dict[str, str]:
        return {
            "party": self.party,
            "reason": self.reason.name,
            "detail": self.detail,
            "culprit": self.culprit,
        }


@dataclass(frozen=True)
class LieReport:
    """What became of a lie: what honest parties noticed, whom they named, and what they committed.

    `told` is how often it was told: never, if the run gave no occasion. `falsified_commits` counts the states that
    honest parties took over and that do not follow from what the members of the sum trained.
    """

    lie: type[Lie]
    liars: tuple[PartyId, ...]
    told: int
    noticed: tuple[Noticed, ...]
    named: tuple[PartyId, ...]
    committed: tuple[int, ...]
    falsified_commits: int
    abort_reason: AbortReason | None

    def __repr__(self) -> str:
        return (
            f"LieReport({self.lie.name!r}, {len(self.noticed)} noticed, named={list(self.named)}, "
            f"{len(self.committed)} rounds, {self.falsified_commits} falsified)"
        )

    def figures(self) -> dict[str, Any]:
        return {
            "lie": self.lie.name,
            "liars": list(self.liars),
            "told": self.told,
            "falsified_commits": self.falsified_commits,
            "noticed": [one.figures() for one in self.noticed],
            "named": list(self.named),
            "committed": [shown_number(one) for one in self.committed],
            "abort_reason": self.abort_reason.name if self.abort_reason is not None else None,
        }

    def describe(self) -> str:
        rows = [(one.party, one.reason.name, one.culprit or "nobody", one.detail) for one in self.noticed]
        title = f"{self.lie.name}, told by {' and '.join(self.liars)}: {self.lie.does}"
        table = Table(title, ("noticed by", "reason", "blames", "what it found"), rows).render()
        return "\n".join([table, *self._summary(), ""])

    def _summary(self) -> Iterator[str]:
        rounds = ", ".join(str(shown_number(one)) for one in self.committed)
        yield f"told          {f'{self.told} times' if self.told else 'never: this run gave no occasion for it'}"
        yield f"named         {', '.join(self.named) or 'nobody'}"
        yield f"committed     {f'round {rounds}' if rounds else 'nothing'}"
        yield f"falsified     {self.falsified_commits} commits at honest parties"
        if self.abort_reason is not None:
            yield f"ABORTED       {self.abort_reason.name}: {self.abort_reason.value}"
        if self.lie.succeeds:
            yield f"limit         {self.lie.noticed_as}"


def describe_lies() -> str:
    """All lies, for people."""
    rows = [(one.name, " ".join(schemes_of(one)), one.does, one.noticed_as) for one in LIES.values()]
    return Table("Lies that `veilsum simulate --lie NAME` plays", COLUMNS, rows).render()


def list_lies() -> list[dict[str, Any]]:
    """All lies, for programs."""
    return [
        {"name": one.name, "schemes": list(schemes_of(one)), "does": one.does, "noticed_as": one.noticed_as}
        for one in LIES.values()
    ]
