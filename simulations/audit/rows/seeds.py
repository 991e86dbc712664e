"""Rows about the seeds of AMPC's biases: used twice, or too short.

Both attacks are the server's. Neither works here, because keys are bound to round, attempt and model, and seeds have
256 bits. The oracle rows show that the attacks are able to succeed: the same sums under biases as they must not be,
drawn once for two rounds, or from a generator with a short seed. The undefended row is plain FedAvg, whose server needs
no attack to know the sums; the null row is the attack on random words.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.numbers.ring import RingVector
from veilsum.roles.learning.seeds import generator
from veilsum.simulations.attacks.carried import uploads_in
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.rounds.seeds import (
    ReusedSeeds,
    WeakSeeds,
    difference,
    numpy_stream,
    search,
)
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.measured import counted_row
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.stage import Played
from veilsum.simulations.audit.steps import Steps

TRIED_SEEDS, SHORT_BITS = 4096, 32
_ALIKE = 0.99


def _played(request: Request, steps: Steps) -> Played:
    if not request.meets_its_scheme:
        raise ParameterError(
            [f"{request.attack} is an attack on {request.entry.against}, not on {request.scheme}"]
        )
    steps.expect(1)
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    return next(replace(request, rounds=2).stages())


def _true_sums(played: Played) -> tuple[FixedPoint, list[RingVector]]:
    """The sums of two rounds as peers open them: what the biases hide."""
    view = played.view("peer")
    encoding = config_of(view.facts).parameters(view.facts.dimension).encoding
    totals = {one.round: one.total for one in view.results if one.total is not None}
    return encoding, [np.array(totals[round_]) for round_ in (0, 1)]


def reused_rows(attack: ReusedSeeds, request: Request, steps: Steps) -> Iterator[Row]:
    played = _played(request, steps)
    view = played.view(request.adversary)
    encoding, (first, second) = _true_sums(played)
    truth = difference(encoding, first, second)
    words = "change of the sum from one round to the next"

    def judged(found: NDArray[np.float64]) -> dict[str, float]:
        return {"correlation": float(np.corrcoef(found, truth)[0, 1])}

    started = time.process_time()
    found = judged(attack.change(view))
    cpu_s = time.process_time() - started
    yield counted_row(request, "attack", words, _alike(found), cpu_s, threat=repr(view), extra=found)
    before, after = _plain_means(request)
    known = judged(after - before)
    yield counted_row(request.undefended, "undefended", words, _alike(known), extra=known)
    draw = generator(request.seed, "audit biases")
    noise = judged(difference(encoding, _words(draw, encoding, first), _words(draw, encoding, first)))
    yield counted_row(request, "null", words, _alike(noise), extra=noise)
    bias = _words(draw, encoding, first)
    reused = judged(difference(encoding, first - bias, second - bias))
    yield counted_row(request, "oracle", f"{words}, biases drawn once", _alike(reused), extra=reused)


def _plain_means(request: Request) -> list[NDArray[np.float64]]:
    """What the server of plain FedAvg sees in the same two rounds."""
    view = next(replace(request.undefended, rounds=2).stages()).view("server")
    return [
        np.mean([carried.vector.astype(np.float64) for *_, carried in uploads_in(view, round_)], axis=0)
        for round_ in (0, 1)
    ]


def _alike(found: dict[str, float]) -> list[bool]:
    return [found["correlation"] > _ALIKE]


def _words(draw: np.random.Generator, encoding: FixedPoint, like: RingVector) -> RingVector:
    dtype = encoding.ring.dtype
    return draw.integers(0, np.iinfo(dtype).max, len(like), dtype=dtype, endpoint=True)


def weak_rows(attack: WeakSeeds, request: Request, steps: Steps) -> Iterator[Row]:
    played = _played(request, steps)
    view = played.view(request.adversary)
    encoding, (total, _) = _true_sums(played)
    parties = int(total[-1])
    words, seeds = f"{TRIED_SEEDS} seeds tried", range(TRIED_SEEDS)

    def expand(seed: int, length: int) -> RingVector:
        return numpy_stream(seed, length).astype(encoding.ring.dtype)

    tried = attack.search(view, parties, expand, seeds)
    hours = {f"core_hours_for_{SHORT_BITS}_bits": tried.hours_for(SHORT_BITS)}
    hit, note = [tried.found is not None], "seeds have 256 bits"
    yield counted_row(request, "attack", words, hit, tried.cpu_s, note, repr(view), hours)
    mean = _plain_means(request)[0]
    clear = float(np.corrcoef(mean, encoding.ring.signed(total)[: len(mean)].astype(np.float64))[0, 1])
    known = {"correlation": clear}
    yield counted_row(request.undefended, "undefended", "the sum in clear", _alike(known), extra=known)
    draw = generator(request.seed, "audit biases")
    nothing = search(_words(draw, encoding, total), parties, expand, seeds)
    yield counted_row(request, "null", words, [nothing.found is not None], nothing.cpu_s)
    secret = int(draw.integers(TRIED_SEEDS))
    found = search(total - expand(secret, len(total)), parties, expand, seeds)
    weak = f"{words}, bias of a {TRIED_SEEDS.bit_length() - 1}-bit seed"
    yield counted_row(request, "oracle", weak, [found.found == secret], found.cpu_s)
