"""PPC curves as sections of the report."""

from __future__ import annotations

import math
from collections.abc import Iterator

from veilsum.roles.pages.charts import Band, Chart, paired_curves
from veilsum.simulations.audit.report.page import Section
from veilsum.simulations.audit.sweeps.cap import GREEN_RATIO, WHITE_RATIO
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome, cap_table, point_table

_TITLES = {"rmse": "relative error of the image", "label": "labels missed", "tracing": "images not traced"}
_LEVELS = ("naive", "adaptive")
_ABOUT = (
    "Each mark is one setting of a defence. To the left the perturbation is large, to the right the signal is; solid "
    "lines are attacks that ignore the defence, dashed ones those that know it. Higher is better for the data owner."
)


def sections(outcome: PpcOutcome) -> list[Section]:
    """Plots of accuracy and of accuracy x distance, then the tables."""
    if not outcome.points:
        return []
    return [
        Section("Accuracy against leakage (PPC)", _ABOUT, charts=list(_charts(outcome))),
        Section("CAP", tables=[cap_table(outcome)]),
        Section("Points", tables=[point_table(outcome)]),
    ]


def _charts(outcome: PpcOutcome) -> Iterator[Chart]:
    found = outcome.by_defence()
    highest = max(point.position for point in outcome.points)
    bands = [
        Band(0.0, _place(GREEN_RATIO, highest), "perturbation over signal", "#009e73"),
        Band(_place(WHITE_RATIO, highest), highest, "signal over 10 x perturbation", "#d55e00", "//"),
    ]
    across = "log10(|B| / |E| + 1)"
    accuracy = {name: {"": [(p.position, p.accuracy) for p in points]} for name, points in found.items()}
    yield paired_curves(accuracy, title="Accuracy", across=across, up="accuracy", bands=bands)
    for metric, words in _TITLES.items():
        pairs = {
            name: {
                level: [(p.position, p.accuracy * min(p.distances[level][metric], 1.0)) for p in points]
                for level in _LEVELS
            }
            for name, points in found.items()
        }
        title = f"Accuracy x {words}, capped at 1"
        yield paired_curves(pairs, title=title, across=across, up="accuracy x distance", bands=bands)


def _place(ratio: float, highest: float) -> float:
    return min(math.log10(ratio + 1), highest)
