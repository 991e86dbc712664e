"""Figures into a Markdown page, between two marks, so that no number in the page is typed by hand.

Templates that escape for HTML would be wrong here: an entity in a code span is shown as it stands, and Markdown has
markup of its own. A view may be a stranger's, so that every cell, sentence and note goes through `_shown` instead.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.output import Table
from veilsum.roles.cli.output_file import write_output
from veilsum.simulations.audit.report.summary import Summary
from veilsum.simulations.audit.report.verdicts import verdicts
from veilsum.simulations.audit.rows.row import Row, also, common_cells
from veilsum.transport.printable import printable, printable_lines

FIGURES, CURVES, MATRIX = "figures", "ppc", "matrix"
_MARKUP = re.compile(r"[\\`*_\[\]!<>#~&$]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""What can begin markup inside a line, GitHub's formulas and links of bare addresses included. Round brackets cannot
once square ones are escaped, and stay readable."""
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])|&#?\w+;")


def marks(name: str) -> tuple[str, str]:
    """The lines between which the figures of one command stand."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace_figures(path: Path, body: str, name: str = FIGURES) -> None:
    """Put `body` between the marks of the page; a page without marks is left alone."""
    begin, end = marks(name)
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ParameterError([f"{path} has no place for figures: add the lines {begin} and {end}"])
    write_output(path, f"{before}{begin}\n\n{printable_lines(body.strip())}\n\n{end}{after}")


def require_marks(path: Path, name: str = FIGURES) -> Path:
    """Refuse before the work what would fail after it."""
    begin, end = marks(name)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if begin not in text or end not in text.partition(begin)[2]:
        raise ParameterError([f"{path} must exist and hold the lines {begin} and {end}"])
    return path


def figures(
    command: str,
    rows: Sequence[Row],
    models: Sequence[Sequence[str]],
    notes: Sequence[str],
    said: Summary | None = None,
) -> str:
    """Sentences, verdicts, rows and the table of models, without anything that differs from machine to machine."""
    parts = [f"Made by {_in_code(command)}.", *_sentences(said), "## Verdicts"]
    parts.append(
        markdown_table(
            ("scheme", "defence", "adversary", "case", "verdict", "why"),
            [
                (one.scheme, one.defence, one.adversary, one.case, one.word, one.reason)
                for one in verdicts(rows)
            ],
        )
    )
    parts.append("## Who hides and who recovers which model")
    parts.append(markdown_table(("scheme", "adversary", "another party's update", "global model"), models))
    parts.append("## Rows")
    columns = (
        "scheme",
        "defence",
        "adversary",
        "attack",
        "level",
        "row",
        "target",
        "n",
        "rMSE",
        "SSIM",
        "ASR",
        "95 % CI",
        "also",
    )
    parts.append(markdown_table(columns, [_cells(row) for row in rows]))
    parts += [f"- {_shown(note)}" for note in notes]
    return "\n\n".join(parts)


def table_in(path: Path, name: str) -> list[list[str]]:
    """The cells of the table between the marks of a page, its heading first; the line below the heading is left out."""
    begin, end = marks(name)
    body = require_marks(path, name).read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    lines = [line.strip().strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    return [[_read(cell.strip()) for cell in line] for line in lines[:1] + lines[2:]]


def _sentences(said: Summary | None) -> list[str]:
    return [_shown(" ".join(said.lines()))] if said is not None else []


def curve_figures(
    command: str, tables: Sequence[Table], notes: Sequence[str], said: Summary | None = None
) -> str:
    """Points and CAP of `veilsum audit ppc`."""
    parts = [f"Made by {_in_code(command)}.", *_sentences(said)]
    for table in tables:
        parts += [f"{table.title}.", markdown_table(table.columns, table.rows)]
    return "\n\n".join([*parts, *map(_shown, notes)])


def _cells(row: Row) -> tuple[str, ...]:
    known = row.ci_low is not None and row.ci_high is not None
    interval = f"{row.ci_low:.2f} to {row.ci_high:.2f}" if known else ""
    return (*common_cells(row), interval, also(row))


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_shown(cell) for cell in line)} |" for line in lines)


def _shown(text: str) -> str:
    """A view may be a stranger's: what is not printable is escaped, and nothing of it is markup or ends the cell."""
    return _MARKUP.sub(r"\\\g<0>", printable(text)).replace("|", "&#124;")


def _read(cell: str) -> str:
    """The text that a cell shows."""
    return _ESCAPED.sub(lambda found: found[1] or html.unescape(found[0]), cell)


def _in_code(command: str) -> str:
    """In code style nothing is markup but as many backticks as it began with."""
    said = printable(command)
    fence = "`" * (1 + max(map(len, re.findall("`+", said)), default=0))
    room = " " if len(fence) > 1 else ""
    return f"{fence}{room}{said}{room}{fence}"
