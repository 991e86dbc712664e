"""Privacy-preserving characteristic (PPC) and its average (CAP), as printed and as they should be read.

A point of a PPC is one setting of a defence: how large the signal is against the perturbation, how accurate the
trained model is, and how far an attack stays from the truth. CAP is the mean of accuracy x distance over points.

As printed, the distance is an unbounded relative error, averaged over whatever settings each method was tried with:
one diverged optimiser outweighs everything, and a method is judged by its own grid. The fair form caps the
distance at 1 (no better than a black image) and averages over a grid of signal-to-perturbation ratios that is common
to all methods, by linear interpolation between their points. `best` takes the nearest of all attacks at each point: an
adaptive attack that ran out of budget must not make a defence look better than the naive one leaves it.

Implements specs/measures.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

LARGEST_RATIO = 1e6
GREEN_RATIO, WHITE_RATIO = 1.0, 10.0


@dataclass(frozen=True)
class Point:
    """One setting of one defence. Distances are by attack level, then by metric."""

    defence: str
    parameter: float
    ratio: float
    """The norm of the bias gradients of the attacked layers over the norm of the perturbation on them."""
    accuracy: float
    distances: Mapping[str, Mapping[str, float]]
    cpu_s: float = 0.0
    layers: Mapping[str, float] = field(default_factory=dict)
    """The same ratio for the bias of each layer, the head included."""
    cosine: float = 0.0
    """Between the clean gradient below the head and what the defence added to it."""

    @property
    def position(self) -> float:
        """The x axis of a PPC plot: log10(ratio + 1)."""
        return math.log10(min(self.ratio, LARGEST_RATIO) + 1)


@dataclass(frozen=True)
class Cap:
    """The average of accuracy x distance, in three forms."""

    as_printed: float
    capped: float
    common_grid: float


METRICS = ("rmse", "label", "tracing")
LEVELS = ("naive", "adaptive", "best")


def distance(point: Point, level: str, metric: str) -> float:
    """How far the attacks of a level stayed from the truth; `best` is the nearest that any of them came."""
    if level == "best":
        return min(found[metric] for found in point.distances.values())
    return point.distances[level][metric]


def cap(points: Sequence[Point], level: str, metric: str, grid: Sequence[float]) -> Cap:
    """CAP of one defence under one attack level."""
    raw = [point.accuracy * distance(point, level, _raw(metric)) for point in points]
    capped = [point.accuracy * min(distance(point, level, metric), 1.0) for point in points]
    ordered = sorted(zip((point.position for point in points), capped, strict=True))
    positions, products = zip(*ordered, strict=True)
    common = np.interp(grid, positions, products)
    return Cap(float(np.mean(raw)), float(np.mean(capped)), float(common.mean()))


def _raw(metric: str) -> str:
    return "rmse_raw" if metric == "rmse" else metric


def common_grid(points: Sequence[Point], steps: int = 41) -> list[float]:
    """The stretch of the x axis that all defences together cover."""
    positions = [point.position for point in points]
    return [float(x) for x in np.linspace(min(positions), max(positions), steps)]
