"""Settings know their range: a number between two ends, or one of a few words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Number:
    """A setting that is a number from `low` to `high`; with `above`, `low` itself is not allowed."""

    low: float
    high: float
    whole: bool = False
    above: bool = False

    @property
    def allowed(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {'above' if self.above else 'from'} {self.low:g} to {self.high:g}"

    def read(self, text: str) -> int | float:
        value = int(text) if self.whole else float(text)
        if not self.allows(value):
            raise ValueError(text)
        return value

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (
            math.isfinite(value) and self.low <= value <= self.high and not (self.above and value == self.low)
        )


@dataclass(frozen=True)
class Choice:
    """A setting that is one of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.words)}"

    def read(self, text: str) -> str:
        if not self.allows(text):
            raise ValueError(text)
        return text

    def allows(self, value: object) -> bool:
        return value in self.words


Rule: TypeAlias = Number | Choice
