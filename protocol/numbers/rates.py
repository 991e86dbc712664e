"""The learning rate of a round, the same bits on every machine.

    constant                       the rate itself
    step:every=ROUNDS,factor=F     multiplied by F after every so many rounds
    cosine:rounds=ROUNDS           half a cosine; the rate of its last round holds for all later ones

Parties that take a step themselves compare hashes of what comes out, so a rate must not depend on the machine either.
`pow` and `cos` of a C library may differ in the last bit from one system to the next. A power is therefore a fixed
order of float64 products, and the cosine is summed in whole numbers of sixty digits and rounded to float64 once.

Implements specs/learning.md, section 4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from veilsum.protocol.errors import LocalProtocolError

SCHEDULE_FORMS = "constant, step:every=ROUNDS,factor=F with 0 < F <= 1, cosine:rounds=ROUNDS"
_STEP = re.compile(r"step:every=(\d{1,9}),factor=([0-9.]+(?:e-?\d+)?)")
_COSINE = re.compile(r"cosine:rounds=(\d{1,9})")
_UNIT = 10**60
_PI = 3141592653589793238462643383279502884197169399375105820974944
"""pi in units of 10^-60."""


@dataclass(frozen=True)
class RateSchedule:
    """A rate and how it falls over the rounds, which are counted from 0."""

    rate: float
    form: str = "constant"

    def at(self, round_number: int) -> float:
        if round_number < 0:
            raise LocalProtocolError(f"rounds count from 0, not {round_number}")
        if match := _STEP.fullmatch(self.form):
            return self.rate * power(float(match[2]), round_number // int(match[1]))
        if match := _COSINE.fullmatch(self.form):
            # The last round of the schedule still moves; later rounds keep its rate.
            rounds = int(match[1])
            return self.rate * 0.5 * (1.0 + cosine_of_part(min(round_number, rounds - 1), rounds))
        return self.rate

    def describe(self) -> list[str]:
        """The rate, exactly, and the form."""
        return [float(self.rate).hex(), self.form]


def is_schedule(text: str) -> bool:
    """Whether a text is one of `SCHEDULE_FORMS`."""
    if match := _STEP.fullmatch(text):
        return int(match[1]) >= 1 and _is_fraction(match[2])
    if match := _COSINE.fullmatch(text):
        return int(match[1]) >= 1
    return text == "constant"


def power(base: float, exponent: int) -> float:
    """base ** exponent for a whole exponent from 0, by squaring from the lowest bit up: a fixed order of products."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def cosine_of_part(part: int, whole: int) -> float:
    """cos(pi * part / whole) for 0 <= part <= whole, rounded once."""
    if 2 * part == whole:
        return 0.0
    angle = _PI * part // whole
    square = angle * angle // _UNIT
    total, term, order = _UNIT, _UNIT, 0
    while term:
        order += 2
        term = term * square // (_UNIT * order * (order - 1))
        total += -term if order % 4 else term
    return total / _UNIT


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False
