"""PPC curves as a section of the report."""

from __future__ import annotations

import math

from veilsum.roles.cli.output import Table
from veilsum.simulations.audit.report.page import Section, html_table
from veilsum.simulations.audit.report.pictures import Band, Curve, plot
from veilsum.simulations.audit.sweeps.cap import GREEN_RATIO, WHITE_RATIO
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome, cap_table, point_table

_TITLES = {"rmse": "relative error of the image", "label": "labels missed", "tracing": "images not traced"}


def sections(outcome: PpcOutcome) -> list[Section]:
    """Plots of accuracy and of accuracy x distance, then the tables."""
    if not outcome.points:
        return []
    curves = outcome.by_defence()
    highest = max(point.position for point in outcome.points)
    bands = [
        Band(0.0, _place(GREEN_RATIO, highest), "#2e9e55", "perturbation at least as large as the signal"),
        Band(_place(WHITE_RATIO, highest), highest, "#d6402f", "signal more than ten times the perturbation"),
    ]
    accuracy = [Curve(name, [(p.position, p.accuracy) for p in points]) for name, points in curves.items()]
    x_words = "log10(|B| / |E| + 1)"
    parts = [
        "<p>Green: the perturbation is at least as large as the signal; red: the signal is more than ten times "
        "larger. Solid lines are naive attacks, dashed ones adaptive. Higher is better for the data owner.</p>",
        f'<div class="plots">{_figure("Accuracy", plot(accuracy, x_words, "accuracy", bands=bands))}',
    ]
    for metric, words in _TITLES.items():
        lines = [
            Curve(
                f"{name}, {level}",
                [(p.position, p.accuracy * min(p.distances[level][metric], 1.0)) for p in points],
                dashed=level == "adaptive",
            )
            for name, points in curves.items()
            for level in ("naive", "adaptive")
        ]
        drawing = plot(lines, x_words, "accuracy x distance", bands=bands)
        parts.append(_figure(f"Accuracy x {words}, capped at 1", drawing))
    parts.append("</div>")
    tables = [_section_table(cap_table(outcome)), _section_table(point_table(outcome))]
    return [Section("Accuracy against leakage (PPC)", "".join(parts)), Section("CAP", "".join(tables))]


def _figure(caption: str, drawing: str) -> str:
    return f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>"


def _place(ratio: float, highest: float) -> float:
    return min(math.log10(ratio + 1), highest)


def _section_table(table: Table) -> str:
    return f"<p>{table.title}</p>{html_table(table.columns, table.rows)}"
