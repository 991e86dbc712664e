"""Who learns what under which scheme, condensed from what an audit measured: one cell for each adversary and scheme.

A cell holds what the adversary got of a party that is not one of its own: I, an individual update; samples, training
images themselves; G, the global model; "its predictions", where those of a perturbed model can be had; "refused", where
a lie was; "nothing". "About" stands before what was had in part. A cell that nothing was measured for is empty. The
same table stands in specs/threat-model.md between two marks, and a test compares.

Implements specs/threat-model.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veilsum.simulations.attacks.crafted.craft import CraftedGradients
from veilsum.simulations.attacks.registry import ATTACKS
from veilsum.simulations.attacks.rounds.differencing import ExactDifferencing, RoundDifferencing
from veilsum.simulations.audit.report.verdicts import HOLDS, LEAKS, OPEN, PARTLY, judge
from veilsum.simulations.audit.rows.asides import ModelLine
from veilsum.simulations.audit.rows.models import PREDICTIONS, RECOVERS
from veilsum.simulations.audit.rows.row import Row

TITLE = "Who learns what under which scheme, as measured"
CORNER = "adversary"
NOTHING, REFUSED = "nothing", "refused"
VIEWS = {
    "broker": "broker",
    "server": "curious server",
    "client": "one curious participant",
    "others": "all participants but one",
    "coalition": "server and one participant",
}
"""Those who follow the protocol, by the name of the view that they have."""
LIES: Mapping[type[Any], str] = {
    RoundDifferencing: "curious server, two rounds that differ by one party",
    ExactDifferencing: "lying server, two sums at one model",
    CraftedGradients: "lying server, a crafted model",
}
"""Attacks with a row of their own: they need more than one view of one round, or a lie."""
_ORDER = (LEAKS, PARTLY, OPEN, HOLDS)


@dataclass(frozen=True)
class Matrix:
    schemes: tuple[str, ...]
    cells: Mapping[tuple[str, str], str] = field(repr=False)
    """(adversary, scheme) -> what it gets."""

    @property
    def columns(self) -> tuple[str, ...]:
        return CORNER, *self.schemes

    @property
    def lines(self) -> list[tuple[str, ...]]:
        return [
            (name, *(self.cells.get((name, scheme), "") for scheme in self.schemes))
            for name in (*VIEWS.values(), *LIES.values())
        ]

    def figures(self) -> list[dict[str, str]]:
        return [dict(zip(self.columns, line, strict=True)) for line in self.lines]


def condensed(schemes: Sequence[str], models: Iterable[ModelLine], rows: Sequence[Row]) -> Matrix:
    """The matrix of these measurements."""
    cells = {(VIEWS[adversary], scheme): _learned(*got) for scheme, adversary, *got in models}
    worst: dict[tuple[str, str], str] = {}
    for row in rows:
        kind = _kind(row)
        if row.row != "attack" or kind is None:
            continue
        place, word = (LIES[kind], row.scheme), judge(row, rows)[0]
        if place not in worst or _ORDER.index(word) < _ORDER.index(worst[place]):
            worst[place] = word
            cells[place] = _said(word, row)
    return Matrix(tuple(schemes), cells)


def _learned(local: str, whole: str) -> str:
    words = [letter for letter, got in (("I", local), ("G", whole)) if got == RECOVERS]
    if whole == PREDICTIONS:
        words.append(PREDICTIONS)
    return ", ".join(words) or NOTHING


def _kind(row: Row) -> type[Any] | None:
    attack = ATTACKS.get(row.attack)
    return next((kind for kind in LIES if isinstance(attack, kind)), None)


def _said(word: str, row: Row) -> str:
    if word == HOLDS:
        return REFUSED if "refused" in row.extra else NOTHING
    got = "samples" if isinstance(ATTACKS[row.attack], CraftedGradients) else "I"
    return got if word == LEAKS else f"about {got}"
