"""Real vectors as ring vectors, weighted, with a budget that can never be exceeded silently.

A party holds x (d real numbers) and N samples. It uploads d + 2 words, f fractional bits each:

    round((N / w_max) * x * 2^f)   d payload coordinates
    round((N / w_max) * 2^f)       the weight coordinate, so that sample counts stay private
    1                              the check coordinate: the sum must be the number of parties, or the
                                   masks did not cancel (a wrong key, another model, a lost share)

Rounding is half to even. The sum of n such vectors stays below 2^(b-1) in absolute value when

    n * (max(clip, 1) * 2^f + 1) < 2^(b-1)                                   (the budget rule)

and the weighted mean is payload sum / weight sum: the scale 2^f cancels, one float64 division remains.
An opened sum whose count, weight or mean no honest parties can have is refused whole: one party that writes a huge
word, or a weight below zero, would else move the mean anywhere. Inside the clip it still can.
A value that is not finite or beyond the clip is refused where it is held, by its index.

The clip is read as the larger of itself and its float32 neighbour, here and in the budget: a float32 model
clamped to 1.1 holds 1.10000002, and must neither be refused nor slip past the budget.

Rejected: scaling by powers of ten or by the observed maximum (the first wastes bits, the second leaks), and
saturating at the clip (a silent change of the data; the holder should know).

Implements specs/numbers.md, sections 2, 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import (
    AbortReason,
    EncodingError,
    LocalProtocolError,
    ParameterError,
    Rejection,
    WeightNotAgreed,
)
from veilsum.protocol.numbers.ring import RING_BITS, Ring, RingVector, SignedVector

FloatVector = NDArray[np.floating[Any]]

EXTRA_COORDINATES = 2
MAX_FRACTIONAL_BITS = 40

_BLOCK = 1 << 15
_FLOAT64_ROUNDING = 2.0**-53
# The weight, twice; its product with a value; two sums as float64; their quotient; one for all cross terms.
_FLOAT64_STEPS = 7


@dataclass(frozen=True)
class FixedPoint:
    """How one federation writes numbers; every bound is checked at construction."""

    ring: Ring
    fractional_bits: int
    clip: float
    max_parties: int
    max_weight: int

    def __post_init__(self) -> None:
        problems = list(_range_problems(self.max_parties, self.max_weight, self.clip))
        if self.fractional_bits < 0:
            problems.append(f"fractional bits must be at least 0, not {self.fractional_bits}")
        if problems:
            raise ParameterError(problems)
        if not fits_budget(self.ring, self.max_parties, self.clip, self.fractional_bits):
            problems.append(
                f"{self.max_parties} parties x clip {self.clip:g} x 2^{self.fractional_bits} does not fit "
                f"{self.ring.bits}-bit words: use fewer fractional bits, a smaller clip or fewer parties"
            )
        needed = bits_of_one_sample(self.max_weight)
        if self.fractional_bits < needed:
            problems.append(
                f"{self.fractional_bits} fractional bits round one sample of {self.max_weight} to nothing: "
                f"use at least {needed}, or a smaller max weight"
            )
        if problems:
            raise ParameterError(problems)

    @property
    def scale(self) -> float:
        """What a value is multiplied by to become a word."""
        return float(2.0**self.fractional_bits)

    @cached_property
    def largest_word(self) -> int:
        """The largest absolute value of a word of one upload; twice it, times all parties, is below 2^b."""
        return int(_largest_upload(self.clip, self.fractional_bits))

    def vector_length(self, dimension: int) -> int:
        """How many words an update of so many values becomes."""
        return dimension + EXTRA_COORDINATES

    def encode(self, values: FloatVector, samples: int) -> RingVector:
        """The upload of one party before masking."""
        self._require_encodable(values)
        words = np.empty(self.vector_length(len(values)), dtype=self.ring.dtype)
        self.encode_into(words, values, samples)
        return words

    def encode_into(self, words: RingVector, values: FloatVector, samples: int) -> None:
        """The same into words that are there, as many as `encode` makes."""
        self._require_encodable(values)
        fraction = self._require_samples(samples) / self.max_weight
        signed = self.ring.signed(words)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            self._require_within_clip(block, start)
            scaled = np.multiply(block, fraction * self.scale, dtype=np.float64)
            signed[start : start + len(block)] = np.rint(scaled, out=scaled)
        signed[-2] = round(fraction * self.scale)
        signed[-1] = 1

    def decode_mean(self, total: RingVector, parties: int) -> tuple[NDArray[np.float64], float]:
        """The weighted mean of exactly `parties` uploads, and the sum of their samples.

        A sum that no `parties` uploads of `encode` can have is refused; what of it is wrong names no party.
        """
        if not 0 < parties <= self.max_parties:
            raise LocalProtocolError(f"the budget covers 1 to {self.max_parties} parties, not {parties}")
        signed = self.ring.signed(total)
        if int(signed[-1]) != parties:
            raise Rejection(
                AbortReason.CHECK_FAILED, f"counted {int(signed[-1])} parties, agreed on {parties}"
            )
        weight, payload = int(signed[-2]), signed[:-EXTRA_COORDINATES]
        self._require_possible_weight(weight, parties)
        self._require_mean_within_clip(payload, weight, parties)
        mean = payload.astype(np.float64)
        mean /= weight
        return mean, weight / self.scale * self.max_weight

    def _require_possible_weight(self, weight: int, parties: int) -> None:
        """From one sample of each party to the most that each may hold."""
        least, most = parties * round(self.scale / self.max_weight), parties * int(self.scale)
        if not least <= weight <= most:
            found = weight / self.scale * self.max_weight
            raise Rejection(
                AbortReason.CHECK_FAILED,
                f"{parties} parties have weights that add up to {found:.6g}, not to {parties} .. "
                f"{parties * self.max_weight}",
            )

    def _require_mean_within_clip(self, payload: SignedVector, weight: int, parties: int) -> None:
        """A payload word is at most clip times the party's unit, plus rounding; so is the sum of them.

        Rounding moves the word and the weight of each party by half a unit, the product before it by one part in 2^53.
        """
        half = Fraction(parties, 2)
        product = Fraction(_largest_value(self.clip)) * (weight + half)
        most = math.floor(product * (1 + Fraction(1, 1 << 53)) + half)
        if max(int(payload.max(initial=0)), -int(payload.min(initial=0))) <= most:
            return
        wrong = int(np.flatnonzero((payload > most) | (payload < -most))[0])
        raise Rejection(
            AbortReason.CHECK_FAILED,
            f"coordinate {wrong} of the mean is {int(payload[wrong]) / weight:.3g}, beyond the clip of {self.clip:g}",
        )

    def worst_case_error(self, samples: float | None = None, parties: int | None = None) -> float:
        """Bound on the error of a coordinate of the mean of `parties` that hold `samples` each, on average.

        Rounding to words moves each payload and each weight by at most half a unit, and the mean is at most
        `clip`; float64 arithmetic moves it by a few units in the last place.
        """
        parties = self.max_parties if parties is None else parties
        weights = parties * (self.max_weight if samples is None else samples) / self.max_weight
        rounding = parties * 0.5 / self.scale
        if weights <= rounding:
            return float("inf")
        largest = _largest_value(self.clip)
        return rounding * (1 + largest) / (weights - rounding) + largest * _FLOAT64_STEPS * _FLOAT64_ROUNDING

    def _require_encodable(self, values: FloatVector) -> None:
        if not isinstance(values, np.ndarray) or values.ndim != 1:
            found = f"shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise EncodingError(f"expected a one-dimensional array, got {found}: flatten it first")
        if values.dtype not in (np.float32, np.float64):
            raise EncodingError(f"expected float32 or float64 values, got {values.dtype}: convert them first")

    def _require_samples(self, samples: int) -> int:
        if isinstance(samples, (bool, np.bool_)) or not isinstance(samples, (int, np.integer)):
            raise EncodingError(
                f"a sample count is an integer, got {type(samples).__name__}: count, do not weigh"
            )
        if not 0 < samples <= self.max_weight:
            raise WeightNotAgreed(
                f"a party needs 1 to {self.max_weight} samples, got {samples}: raise max_weight in federation.toml for "
                "all parties (veilsum roster sign), or leave this one out"
            )
        return int(samples)

    def _require_within_clip(self, block: FloatVector, start: int) -> None:
        largest = _largest_value(self.clip)
        if max(float(block.max()), -float(block.min())) <= largest:
            return
        wrong = int(np.flatnonzero(~(np.abs(block.astype(np.float64)) <= largest))[0])
        value = float(block[wrong])
        if not math.isfinite(value):
            raise EncodingError(
                f"coordinate {start + wrong} is {value}: training diverged, lower the learning rate"
            )
        raise EncodingError(
            f"coordinate {start + wrong} is {value:g}, beyond the clip of {self.clip:g}: "
            "clamp it, or raise the clip for all parties"
        )


def fits_budget(ring: Ring, parties: int, clip: float, fractional_bits: int) -> bool:
    """The budget rule, in exact arithmetic."""
    return parties * _largest_upload(clip, fractional_bits) < ring.signed_limit


def _largest_upload(clip: float, fractional_bits: int) -> Fraction:
    """What no word of one upload exceeds, in absolute value."""
    return max(Fraction(_largest_value(clip)), Fraction(1)) * (1 << fractional_bits) + 1


def bits_of_one_sample(max_weight: int) -> int:
    """The fractional bits that keep the weight of a single sample, 1 / max_weight, from rounding to zero."""
    return (max_weight - 1).bit_length()


def _largest_value(clip: float) -> float:
    """The largest value that clamping to `clip` leaves, in float64 or in float32."""
    if clip > float(np.finfo(np.float32).max):
        return clip
    return max(clip, float(np.float32(clip)))


@dataclass(frozen=True)
class EncodingPlan:
    """What the planner found; `encoding` is what a run uses."""

    encoding: FixedPoint
    planned_bits: int

    @property
    def headroom_bits(self) -> float:
        """How many more doublings of the sum would fit."""
        encoding = self.encoding
        largest = encoding.max_parties * (max(_largest_value(encoding.clip), 1.0) * encoding.scale + 1)
        return math.log2(encoding.ring.signed_limit / largest)


def plan(parties: int, max_weight: int, clip: float, bits: int) -> EncodingPlan:
    """The most fractional bits that fit, at most 40; an impossible request says which number to change."""
    problems = list(_range_problems(parties, max_weight, clip))
    if bits not in RING_BITS:
        problems.append(f"bits must be 32 or 64, not {bits}")
    if problems:
        raise ParameterError(problems)
    ring = Ring(bits)
    planned = max((f for f in range(bits) if fits_budget(ring, parties, clip, f)), default=-1)
    used = min(planned, MAX_FRACTIONAL_BITS)
    if used < bits_of_one_sample(max_weight):
        raise ParameterError([_impossible(ring, parties, max_weight, clip, used)])
    return EncodingPlan(FixedPoint(ring, used, clip, parties, max_weight), planned)


def _impossible(ring: Ring, parties: int, max_weight: int, clip: float, available: int) -> str:
    """The numbers asked for, what stands in the way, and what to change."""
    needed = bits_of_one_sample(max_weight)
    asked = f"{parties} parties with weights up to {max_weight} and values up to {clip:g}"
    found = "no fractional bit is left" if available < 0 else f"only {available} fractional bits are left"
    remedy = _remedy(ring, parties, clip, needed)
    return f"{asked} do not fit {ring.bits}-bit words: {found}, and one sample needs {needed}; {remedy}"


def _remedy(ring: Ring, parties: int, clip: float, needed: int) -> str:
    if needed > MAX_FRACTIONAL_BITS:
        return f"lower the max weight to {1 << MAX_FRACTIONAL_BITS} or less"
    if ring.bits < max(RING_BITS) and fits_budget(Ring(max(RING_BITS)), parties, clip, needed):
        return "use 64 bits"
    # Whole powers of two are exact as floats, so that following the advice to the letter works.
    exponent = next((e for e in range(62, -1, -1) if fits_budget(ring, parties, float(1 << e), needed)), None)
    if exponent is not None:
        return f"lower the clip to {1 << exponent} or less, or lower the parties or the max weight"
    return "lower the parties or the max weight: with so many of them no clip fits"


def _range_problems(parties: int, max_weight: int, clip: float) -> Iterator[str]:
    if parties < 1:
        yield f"parties must be at least 1, not {parties}"
    if max_weight < 1:
        yield f"max weight must be at least 1, not {max_weight}"
    if not (math.isfinite(clip) and clip > 0):
        yield f"clip must be a positive number, not {clip}"
