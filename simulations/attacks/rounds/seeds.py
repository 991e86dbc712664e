"""Weak and reused seeds: what would give AMPC away, and what it costs to try.

*Reuse.* If two rounds used the same biases, the difference of the server's two sums would be the difference of the two
true sums. Here every key is derived from round, attempt and model, so the difference is uniform too.

*Weakness.* If bias streams came from a generator with a short seed, the server could try all seeds: the last words
of a sum are known in advance (every party adds a one), so a right guess is recognised. `search` does so for any
stream; what it needs per guess, times 2^bits, is the price.

Implements specs/attacks.md, section 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.identifiers import shown_number
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES, FixedPoint
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.verification import untagged
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import StagedAttack
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.misfits import AttackDoesNotFit

Expand = Callable[[int, int], RingVector]
"""(seed, length) -> the words of a stream."""


class SeedsOfBiases(StagedAttack):
    """One on the biases of `ampc`, by its server."""

    knowledge = "L1"
    model = "mlp2:16"
    against = "ampc"
    by = "server"
    needs_scheme = True


class ReusedSeeds(SeedsOfBiases):
    """The change of the mean between two rounds, if both were under the same biases."""

    name = "seeds-reused"
    summary = "two sums under the same biases"

    def change(self, view: View, first: int = 0, second: int = 1) -> NDArray[np.float64]:
        """The mean payload of the second round less that of the first."""
        sums = {message.stamp.round: message for _, message in view.sent(Aggregate)}
        if first not in sums or second not in sums:
            rounds = f"rounds {shown_number(first)} and {shown_number(second)}"
            raise AttackDoesNotFit(f"the view holds no sums of {rounds}: play more rounds")
        encoding = config_of(view.facts).parameters(view.facts.dimension).encoding
        return difference(encoding, untagged(sums[first].vector), untagged(sums[second].vector))


class WeakSeeds(SeedsOfBiases):
    """The seed of a bias, if it is short and its generator is known."""

    name = "seeds-weak"
    summary = "biases of short seeds, by trying them"

    def search(self, view: View, count: int, expand: Expand, seeds: range) -> Search:
        """Try the seeds on the sum of the first round, of so many parties."""
        for _, message in view.sent(Aggregate, 0):
            return search(np.array(untagged(message.vector)), count, expand, seeds)
        raise AttackDoesNotFit("the view holds no biased sum: it is not of an ampc server")


def difference(encoding: FixedPoint, first: RingVector, second: RingVector) -> NDArray[np.float64]:
    """What two sums under one mask show."""
    words = np.array(second) - np.array(first)
    return encoding.ring.signed(words)[:-EXTRA_COORDINATES].astype(np.float64) / encoding.scale


@dataclass(frozen=True)
class Search:
    """How a search for a seed went."""

    found: int | None
    tried: int
    cpu_s: float

    def hours_for(self, bits: int) -> float:
        """What all seeds of so many bits would take on one core."""
        return 2.0**bits * self.cpu_s / max(self.tried, 1) / 3600


def search(masked: RingVector, count: int, expand: Expand, seeds: range) -> Search:
    """Try the seeds; the right one leaves the number of parties in the last word."""
    started = time.process_time()
    for number, seed in enumerate(seeds, 1):
        stream = expand(seed, len(masked))
        if int((masked[-1:] + stream[-1:])[0]) == count:
            return Search(seed, number, time.process_time() - started)
    return Search(None, len(seeds), time.process_time() - started)


def numpy_stream(seed: int, length: int) -> RingVector:
    """The kind of stream that must not be used: a statistical generator with a short seed."""
    return np.random.default_rng(seed).integers(0, 2**64, length, dtype=np.uint64)
