"""Two sums that differ by one party, subtracted: that party's update, and its sample count.

At one model the difference is the update itself, exactly. A server gets two such sums at one model if it can keep the
model still; parties that hold the chain of models themselves do not go back to a position. Over two rounds that follow
each other the models differ by a step, and the difference is off by what the others' updates changed meanwhile: how
far is measured, and depends on the step. The count does not change between rounds, so it is exact in both cases.

Implements specs/attacks.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.identifiers import shown_number
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.numbers.ring import RingVector
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import StagedAttack
from veilsum.simulations.attacks.carried import sums_in
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.gradient.targets import read_words
from veilsum.simulations.attacks.misfits import AttackDoesNotFit


@dataclass(frozen=True, eq=False)
class Difference:
    """What stands for one party between two sums."""

    update: NDArray[np.floating[Any]]
    samples: float


class Differencing(StagedAttack):
    """By whoever sees sums, here the server."""

    knowledge = "L1"
    model = "mlp2:64"
    by = "server"

    def between(self, view: View, first: int = 0, second: int = 1) -> Difference:
        """From the sums of two rounds of a view, as well as they can be read."""
        encoding = config_of(view.facts).parameters(view.facts.dimension).encoding
        totals = {one.round: (one.total, len(one.members)) for one in view.results if one.total is not None}
        for round_, carried in sums_in(view):
            totals.setdefault(round_, (carried.vector, len(carried.members)))
        if first not in totals or second not in totals:
            rounds = f"rounds {shown_number(first)} and {shown_number(second)}"
            raise AttackDoesNotFit(f"the view holds no sums of {rounds}: play more rounds")
        return subtracted(encoding, *(np.array(totals[one][0]) for one in (first, second)))


class ExactDifferencing(Differencing):
    name = "sums-at-one-model"
    summary = "two sums at one model that differ by one party"


class RoundDifferencing(Differencing):
    name = "sums-over-rounds"
    needs_chain = True
    summary = "two rounds that follow each other and differ by one party"


def subtracted(encoding: FixedPoint, first: RingVector, second: RingVector) -> Difference:
    """Words of a sum less words of another: an upload, if one party is what they differ by."""
    words = first - second
    weight = int(encoding.ring.signed(words)[-2]) / encoding.scale * encoding.max_weight
    return Difference(read_words(encoding, words, 1) / (weight or 1.0), weight)
