"""Visits of people who do not exist, so that a new study runs before it has data.

Every party's people are a little older than those of the one before, and a few pressures were not taken. The rows
follow from the party's name and place alone; like all such streams, they protect nothing.
"""

from __future__ import annotations

import math

import numpy as np

from veilsum.roles.learning.seeds import generator

HEADER = "age,pressure,smoker,ill"
TRAIN_ROWS, TEST_ROWS = 120, 40
_SMOKER = ("never", "former", "current")
_RISK = (0.0, 0.6, 1.4)


def made_up_rows(party: str, place: int) -> tuple[str, str]:
    """The text of train.csv and of test.csv for the party at this place among all."""
    rng = generator(0, "made-up visits", party)
    rows = [_row(rng, 45 + 4 * (place % 5)) for _ in range(TRAIN_ROWS + TEST_ROWS)]
    return _text(rows[:TRAIN_ROWS]), _text(rows[TRAIN_ROWS:])


def _row(rng: np.random.Generator, mean_age: float) -> str:
    age = int(np.clip(rng.normal(mean_age, 14), 18, 95))
    pressure = int(np.clip(rng.normal(105 + age / 2, 12), 85, 210))
    smoker = int(rng.integers(len(_SMOKER)))
    risk = 0.09 * (age - 50) + 0.05 * (pressure - 130) + 1.5 * _RISK[smoker] - 1
    ill = rng.random() < 1 / (1 + math.exp(-risk))
    taken = "" if rng.random() < 0.03 else str(pressure)
    return f"{age},{taken},{_SMOKER[smoker]},{'yes' if ill else 'no'}"


def _text(rows: list[str]) -> str:
    return "\n".join((HEADER, *rows)) + "\n"
