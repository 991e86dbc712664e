"""Real vectors as ring vectors, weighted, with a budget that can never be exceeded silently.

A party holds x (d real numbers) and N samples. It uploads d + 2 words, f fractional bits each:

    round((N / w_max) * x * 2^f)   d payload coordinates
    round((N / w_max) * 2^f)       the weight coordinate, so that sample counts stay private
    1                              the check coordinate: the sum must be the number of parties, or the
                                   masks did not cancel (a wrong key, another model, a lost share)

Rounding is half to even. The sum of n such vectors stays below 2^(b-1) in absolute value when

    n * (max(clip, 1) * 2^f + 1) < 2^(b-1)                                   (the budget rule)

and the weighted mean is payload sum / weight sum: the scale 2^f cancels, one float64 division remains.
A value that is not finite or beyond the clip is refused where it is held, by its index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import AbortReason, EncodingError, ParameterError, Rejection
from veilsum.protocol.ring import Ring, RingVector

FloatVector = NDArray[np.floating[Any]]

EXTRA_COORDINATES = 2
MAX_FRACTIONAL_BITS = 40
_BLOCK = 1 << 15


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
            raise ParameterError(
                [
                    f"{self.max_parties} parties x clip {self.clip:g} x 2^{self.fractional_bits} does not fit "
                    f"{self.ring.bits}-bit words: use fewer fractional bits, a smaller clip, fewer parties or 64 bits"
                ]
            )

    @property
    def scale(self) -> float:
        return float(2.0**self.fractional_bits)

    def vector_length(self, dimension: int) -> int:
        return dimension + EXTRA_COORDINATES

    def encode(self, values: FloatVector, samples: int) -> RingVector:
        """The upload of one party before masking."""
        self._require_encodable(values, samples)
        fraction = samples / self.max_weight
        words = np.empty(self.vector_length(len(values)), dtype=self.ring.dtype)
        signed = self.ring.signed(words)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            self._require_within_clip(block, start)
            scaled = np.multiply(block, fraction * self.scale, dtype=np.float64)
            signed[start : start + len(block)] = np.rint(scaled, out=scaled)
        signed[-2] = round(fraction * self.scale)
        signed[-1] = 1
        return words

    def decode_mean(self, total: RingVector, parties: int) -> tuple[NDArray[np.float64], float]:
        """The weighted mean of exactly `parties` uploads, and the sum of their samples."""
        signed = self.ring.signed(total)
        if int(signed[-1]) != parties:
            raise Rejection(
                AbortReason.CHECK_FAILED, f"counted {int(signed[-1])} parties, agreed on {parties}"
            )
        weight = int(signed[-2])
        if not 0 < weight <= parties * self.scale:
            raise Rejection(AbortReason.CHECK_FAILED, "the weights of the agreed set do not add up")
        mean = signed[:-EXTRA_COORDINATES].astype(np.float64)
        mean /= weight
        return mean, weight / self.scale * self.max_weight

    def worst_case_error(self, samples: int | None = None, parties: int | None = None) -> float:
        """Bound on the error of a coordinate of the mean when each of `parties` holds `samples`.

        Rounding moves each payload and each weight by at most half a unit, and the mean is at most `clip`.
        """
        parties = self.max_parties if parties is None else parties
        weights = parties * (self.max_weight if samples is None else samples) / self.max_weight
        rounding = parties * 0.5 / self.scale
        return (
            float(rounding * (1 + self.clip) / (weights - rounding)) if weights > rounding else float("inf")
        )

    def _require_encodable(self, values: FloatVector, samples: int) -> None:
        if not isinstance(values, np.ndarray) or values.ndim != 1:
            shape = list(values.shape) if isinstance(values, np.ndarray) else type(values).__name__
            raise EncodingError(f"expected a one-dimensional array, got {shape}: flatten it first")
        if values.dtype not in (np.float32, np.float64):
            raise EncodingError(f"expected float32 or float64 values, got {values.dtype}: convert them first")
        if isinstance(samples, bool) or not isinstance(samples, int) or not 0 < samples <= self.max_weight:
            raise EncodingError(
                f"a party needs 1 to {self.max_weight} samples, got {samples}: raise max_weight or leave the party out"
            )

    def _require_within_clip(self, block: FloatVector, start: int) -> None:
        if max(block.max(), -block.min()) <= self.clip:
            return
        wrong = int(np.flatnonzero(~(np.abs(block) <= self.clip))[0])
        value = float(block[wrong])
        if not np.isfinite(value):
            raise EncodingError(
                f"coordinate {start + wrong} is {value}: training diverged, lower the learning rate"
            )
        raise EncodingError(
            f"coordinate {start + wrong} is {value:g}, beyond the clip of {self.clip:g}: raise clip for all parties"
        )


def fits_budget(ring: Ring, parties: int, clip: float, fractional_bits: int) -> bool:
    """The budget rule, in exact arithmetic."""
    largest = max(Fraction(clip), Fraction(1)) * (1 << fractional_bits) + 1
    return parties * largest < ring.signed_limit


@dataclass(frozen=True)
class Plan:
    """What the planner found; `encoding` is what a run uses."""

    encoding: FixedPoint
    planned_bits: int

    @property
    def headroom_bits(self) -> float:
        """How many more doublings of the sum would fit."""
        encoding = self.encoding
        largest = encoding.max_parties * (max(encoding.clip, 1.0) * encoding.scale + 1)
        return float(np.log2(encoding.ring.signed_limit / largest))


def plan(parties: int, max_weight: int, clip: float, bits: int) -> Plan:
    """The most fractional bits that fit, at most 40; an impossible request says which number to change."""
    problems = list(_range_problems(parties, max_weight, clip))
    if bits not in (32, 64):
        problems.append(f"bits must be 32 or 64, not {bits}")
    if problems:
        raise ParameterError(problems)
    ring = Ring(bits)
    planned = max((f for f in range(bits) if fits_budget(ring, parties, clip, f)), default=-1)
    if planned < 0 or (1 << planned) < max_weight:
        raise ParameterError([_impossible(ring, parties, max_weight, clip, planned)])
    return Plan(FixedPoint(ring, min(planned, MAX_FRACTIONAL_BITS), clip, parties, max_weight), planned)


def _impossible(ring: Ring, parties: int, max_weight: int, clip: float, planned: int) -> str:
    needed = (max_weight - 1).bit_length()
    asked = f"{parties} parties with weights up to {max_weight} and values up to {clip:g}"
    found = "no fractional bit is left" if planned < 0 else f"only {planned} fractional bits are left"
    if ring.bits == 32 and fits_budget(Ring(64), parties, clip, needed):
        remedy = "use --bits 64"
    elif ring.bits == 32:
        remedy = "use --bits 64 and a smaller --clip, --parties or --max-weight"
    else:
        remedy = (
            f"lower --clip below {_largest_clip(ring, parties, needed):.3g}, or --parties, or --max-weight"
        )
    return f"{asked} do not fit {ring.bits}-bit words: {found}, and a single sample needs {needed}; {remedy}"


def _largest_clip(ring: Ring, parties: int, fractional_bits: int) -> float:
    return float((Fraction(ring.signed_limit, parties) - 1) / (1 << fractional_bits))


def _range_problems(parties: int, max_weight: int, clip: float) -> Iterator[str]:
    if parties < 1:
        yield f"parties must be at least 1, not {parties}"
    if max_weight < 1:
        yield f"max weight must be at least 1, not {max_weight}"
    if not (np.isfinite(clip) and clip > 0):
        yield f"clip must be a positive number, not {clip}"
