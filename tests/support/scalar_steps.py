"""A second implementation of specs/learning.md, section 4: one coordinate at a time, in Python floats, and no numpy.

Powers go over the written bits of the exponent, the cosine is a sum of exact fractions, and float32 is what `struct`
makes of a float; only the sentences of the specification are shared with the code under test.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8, "tau": 0.0},
    "adagrad": {"eps": 1e-10, "tau": 0.0},
    "yogi": {"betas": (0.9, 0.99), "tau": 1e-3},
}
REMEMBERED = {"sgd": "", "momentum": "b", "adam": "mv", "adagrad": "v", "yogi": "mv"}


def scalar_power(base: float, exponent: int) -> float:
    result, square = 1.0, base
    for bit in reversed(f"{exponent:b}"):
        result = result * square if bit == "1" else result
        square = square * square
    return result


def scalar_rate(rate: float, form: str, round_number: int) -> float:
    numbers = [float(one) for one in re.findall(r"=([0-9.e-]+)", form)]
    if form.startswith("step"):
        return rate * scalar_power(numbers[1], round_number // int(numbers[0]))
    if form.startswith("cosine"):
        rounds = int(numbers[0])
        return rate * 0.5 * (1.0 + _cosine(Fraction(min(round_number, rounds - 1), rounds)))
    return rate


def _cosine(part: Fraction) -> float:
    """cos(pi * part) with pi by Machin's formula, both far beyond what a float holds."""
    pi = 4 * (4 * _arctangent(5) - _arctangent(239))
    square = (Fraction(round(pi * 10**60), 10**60) * part) ** 2
    total = term = Fraction(1)
    for order in range(2, 80, 2):
        term *= -square / (order * (order - 1))
        total += Fraction(round(term * 10**60), 10**60)
    return float(total)


def _arctangent(inverse: int) -> Fraction:
    return sum(
        (Fraction((-1) ** n, (2 * n + 1) * inverse ** (2 * n + 1)) for n in range(60)), start=Fraction(0)
    )


def rounded(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


@dataclass
class ScalarStep:
    """A step that keeps its own memory; `rates` are those of the kind and of a plain step."""

    kind: str | None
    settings: Mapping[str, Any]
    payload: str
    moved: int
    kept: list[dict[str, float]] = field(default_factory=list)
    count: int = 0

    def apply(
        self, model: Sequence[float], mean: Sequence[float], rate: float, plain_rate: float
    ) -> list[float]:
        if self.kind is not None and self.count == 0:
            start = {"b": 0.0, "m": 0.0, "v": self._setting("tau", 0.0) * self._setting("tau", 0.0)}
            self.kept = [{name: start[name] for name in REMEMBERED[self.kind]} for _ in range(self.moved)]
        self.count += 1
        border = 0 if self.kind is None else self.moved
        return [
            rounded(
                self._move(x, y, self.kept[place], rate) if place < border else self._plain(x, y, plain_rate)
            )
            for place, (x, y) in enumerate(zip(model, mean, strict=True))
        ]

    def _setting(self, name: str, missing: Any = None) -> Any:
        assert self.kind is not None
        return {**DEFAULTS[self.kind], **self.settings}.get(name, missing)

    def _plain(self, x: float, y: float, rate: float) -> float:
        return {"model": y, "delta": x + y, "gradient": x - rate * y}[self.payload]

    def _move(self, x: float, y: float, kept: dict[str, float], rate: float) -> float:
        g = -y if self.payload == "delta" else y
        tau = self._setting("tau", 0.0)
        floor = tau or self._setting("eps")
        match self.kind:
            case "sgd":
                return x - rate * g
            case "momentum":
                kept["b"] = self._setting("momentum") * kept["b"] + g
                return x - rate * kept["b"]
            case "adagrad":
                kept["v"] = kept["v"] + g * g
                return x - g / (math.sqrt(kept["v"]) / 1.0 + floor) * rate
        first, second = self._setting("betas")
        kept["m"] = first * kept["m"] + (1.0 - first) * g
        root = 1.0
        if self.kind == "yogi":
            square, away = g * g, kept["v"] - g * g
            sign = 1.0 if away > 0 else -1.0 if away < 0 else 0.0
            kept["v"] = kept["v"] - sign * square * (1.0 - second)
        else:
            kept["v"] = second * kept["v"] + (1.0 - second) * (g * g)
            if not tau:
                rate = rate / (1.0 - scalar_power(first, self.count))
                root = math.sqrt(1.0 - scalar_power(second, self.count))
        return x - kept["m"] / (math.sqrt(kept["v"]) / root + floor) * rate

    def memory(self) -> bytes:
        """The canonical bytes."""
        if self.kind is None or not REMEMBERED[self.kind]:
            return bytes(9)
        names = REMEMBERED[self.kind]
        written = struct.pack("<QB", self.count, len(names))
        for name in sorted(names):
            written += struct.pack("<B1sQ", 1, name.encode(), len(self.kept))
            written += struct.pack(f"<{len(self.kept)}d", *(one[name] for one in self.kept))
        return written
