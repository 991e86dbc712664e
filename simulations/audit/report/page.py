"""The report as one HTML file that needs nothing else: the verdict in three sentences first, all else to look up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from veilsum import __version__
from veilsum.roles.cli.output import Table
from veilsum.roles.cli.output_file import write_output
from veilsum.roles.pages.charts import Chart
from veilsum.roles.pages.templates import page
from veilsum.simulations.audit.report.drawings import charts
from veilsum.simulations.audit.report.pictures import data_address
from veilsum.simulations.audit.report.summary import CASES, WHO, Summary, summary_of
from veilsum.simulations.audit.report.verdicts import (
    HOLDS,
    LEAKS,
    OPEN,
    PARTLY,
    REALISTIC_IMAGES,
    Verdict,
    verdicts,
    warnings,
    worst_only,
)
from veilsum.simulations.audit.rows.row import COLUMNS, Row, cells_of
from veilsum.transport.printable import printable_lines

MEANING = {
    LEAKS: "the adversary gets what the data owner would not show",
    PARTLY: "more than an attack on noise gets, less than the data",
    HOLDS: "no better than an attack on noise, with an attack that works where nothing protects",
    OPEN: "nothing is shown either way: the attack fails with the secret given, too, or no truth is known",
}
READING = (
    "rMSE is the error over the size of the image, and SSIM how alike two images look; both are medians. ASR is the "
    "share of images with an SSIM of at least 0.9, with its exact 95 % confidence interval. L0 ignores the defence, L1 "
    "knows it but not its secrets, L2 pools several parties. Undefended, null and oracle are the same attack on plain "
    "averaging, on noise, and with the secret given."
)
_NAMED = 2
"""Columns that say which scheme and defence a row is of, left out where the heading says it."""


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page with a heading of its own."""

    title: str
    about: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    folded: bool = False

    @property
    def anchor(self) -> str:
        return anchor(self.title)


@dataclass
class Report:
    """What a page is made of."""

    title: str
    command: str
    scale: str
    rows: Sequence[Row] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
    complete: bool = True
    data: str = "digits"
    notes: Sequence[str] = ()
    summary: Summary | None = None
    """Three sentences, if they are not those that follow from the rows."""
    made: datetime = field(default_factory=lambda: datetime.now(UTC))


def write_page(report: Report, path: Path) -> None:
    """Write the page whole or not at all."""
    write_output(path, render(report))


def render(report: Report) -> str:
    found, rows = verdicts(report.rows), report.rows
    drawn = charts(rows) if not report.sections or found else []
    parts = [Section("Charts", charts=drawn)] if drawn else []
    return printable_lines(
        page(
            "audit.html",
            report=report,
            version=__version__,
            date=report.made.strftime("%Y-%m-%d %H:%M UTC"),
            summary=report.summary or summary_of(rows, report.data),
            grid=_grid(found),
            counts=list(_counts(found)),
            reasons=_reasons(found),
            meaning=MEANING,
            cases=CASES,
            realistic=REALISTIC_IMAGES,
            worst_only=worst_only(found),
            recorded=any(row.recorded for row in rows),
            warnings=[*warnings(rows), *report.notes],
            sections=[*parts, *report.sections],
            gallery=list(_gallery(rows)),
            figures=list(_figures(rows)),
            reading=READING,
            threats=_threats(rows),
        )
    )


def anchor(title: str) -> str:
    """What an address can point to."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"


def _counts(found: Sequence[Verdict]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """For each case how many combinations got which word, the worst first."""
    for case in CASES:
        words = Counter(one.word for one in found if one.case == case)
        if words:
            yield case, [(word, words[word]) for word in MEANING if words[word]]


def _grid(found: Sequence[Verdict]) -> dict[str, Any]:
    """Schemes and defences down, adversaries across; in each cell the word of every case."""
    adversaries = list(dict.fromkeys(one.adversary for one in found))
    cells: dict[tuple[str, str], dict[str, list[Verdict]]] = {}
    for one in found:
        cells.setdefault((one.scheme, one.defence), {}).setdefault(one.adversary, []).append(one)
    lines = [
        (scheme, defence, [of_cell.get(name, []) for name in adversaries])
        for (scheme, defence), of_cell in cells.items()
    ]
    return {"heads": [(name, WHO.get(name, "")) for name in adversaries], "lines": lines}


def _reasons(found: Sequence[Verdict]) -> Table:
    return Table(
        "Why: the attack that decided each verdict",
        ("scheme", "defence", "adversary", "case", "verdict", "why"),
        [(one.scheme, one.defence, one.adversary, one.case, one.word, one.reason) for one in found],
    )


def _by_scheme(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = row.scheme if row.defence == "none" else f"{row.scheme} with {row.defence}"
        groups.setdefault(name, []).append(row)
    return groups


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, Table]]:
    """One table for each scheme and defence."""
    for name, some in _by_scheme(rows).items():
        columns = (*COLUMNS, "also")[_NAMED:]
        yield name, Table(f"Figures of {name}", columns, [cells_of(row)[_NAMED:] for row in some])


def _threats(rows: Sequence[Row]) -> dict[str, list[str]]:
    """What adversaries saw, by the first line that says whose view it is."""
    found: dict[str, list[str]] = {}
    for text in dict.fromkeys(row.threat for row in rows if row.threat):
        found.setdefault(text.partition("\n")[0], []).append(text)
    return found


def _gallery(rows: Sequence[Row]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Rows with pictures, by scheme: what was rebuilt beside the truth, where that is known."""
    for name, some in _by_scheme([row for row in rows if row.pictures]).items():
        yield (
            name,
            [
                {
                    "title": f"{row.attack} by {WHO.get(row.adversary, row.adversary)}",
                    "about": f"{row.row} row, {row.target}",
                    "pictures": [
                        (
                            data_address(one.truth) if one.truth is not None else "",
                            data_address(one.found),
                            one.caption,
                        )
                        for one in row.pictures
                    ],
                }
                for row in some
            ],
        )
