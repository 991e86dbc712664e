"""The report as one HTML file that needs nothing else: verdicts, plots, pictures, threat model, command."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veilsum import __version__
from veilsum.roles.cli.output_file import write_output
from veilsum.simulations.audit.report.pictures import image_tag
from veilsum.simulations.audit.report.style import STYLE
from veilsum.simulations.audit.report.verdicts import Verdict, verdicts, warnings
from veilsum.simulations.audit.rows.row import COLUMNS, Picture, Row, cells_of
from veilsum.transport.printable import printable_lines

_WORDS = {
    "leaks": "the adversary gets what the data owner would not show",
    "partly": "more than an attack on noise gets, less than the image",
    "holds": "no better than an attack on noise",
    "open": "the attack fails, but it also fails with the secret given: nothing is shown either way",
}
_HIDES = {"recovers": "leaks", "hidden": "holds"}
_LONG = 40


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page with a heading of its own; the body is HTML."""

    title: str
    body: str


@dataclass
class Report:
    """What a page is made of."""

    title: str
    command: str
    scale: str
    rows: Sequence[Row] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
    complete: bool = True


def write_page(report: Report, path: Path) -> None:
    """Write the page whole or not at all."""
    write_output(path, render(report))


def render(report: Report) -> str:
    found = verdicts(report.rows)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(report.title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(report.title)}</h1>",
        f'<p class="soft">veilsum {__version__}, scale {html.escape(report.scale)}. Made by</p>',
        f"<pre>{html.escape(report.command)}</pre>",
        _tiles(found),
    ]
    if not report.complete:
        parts.append('<p class="warning">Interrupted: these are the rows that were done.</p>')
    parts += [f'<p class="warning">{html.escape(text)}</p>' for text in warnings(report.rows)]
    if found:
        parts.append(_verdict_table(found))
    parts += [f"<h2>{html.escape(one.title)}</h2>{one.body}" for one in report.sections]
    if report.rows:
        parts += [_gallery(report.rows), _figures(report.rows)]
    threats = list(dict.fromkeys(row.threat for row in report.rows if row.threat))
    if threats:
        parts.append("<h2>Threat model: what each adversary saw and knows</h2>")
        parts += [f"<pre>{html.escape(text)}</pre>" for text in threats]
    return printable_lines("\n".join([*parts, "</body></html>"]))


def _tiles(found: Sequence[Verdict]) -> str:
    """How many cells got each word, which is also the legend."""
    counts = Counter(one.word for one in found)
    tiles = [
        f'<div class="tile {word}"><b>{counts[word]}</b>{word}<span>{text}</span></div>'
        for word, text in _WORDS.items()
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>' if found else ""


def _verdict_table(found: Sequence[Verdict]) -> str:
    settings = list(dict.fromkeys((one.scheme, one.defence) for one in found))
    adversaries = list(dict.fromkeys(one.adversary for one in found))
    cells = {(one.scheme, one.defence, one.adversary): one for one in found}
    lines = []
    for scheme, defence in settings:
        line = [f'<td class="name">{html.escape(scheme)}</td><td class="name">{html.escape(defence)}</td>']
        for adversary in adversaries:
            one = cells.get((scheme, defence, adversary))
            why = (
                "" if one is None else f'{badge(one.word)}<span class="why">{html.escape(one.reason)}</span>'
            )
            line.append(f"<td>{why}</td>")
        lines.append("".join(line))
    return "<h2>Verdicts</h2>" + _table(("scheme", "defence", *adversaries), lines, "verdicts")


def badge(word: str, colour: str = "") -> str:
    return f'<span class="verdict {colour or word}">{html.escape(word)}</span>'


def _table(columns: Sequence[str], lines: Sequence[str], name: str = "", classes: Sequence[str] = ()) -> str:
    """A table from lines of cells that are HTML already."""
    head = "".join(f"<th>{html.escape(one)}</th>" for one in columns)
    kinds = [f' class="{one}"' for one in classes] or [""] * len(lines)
    body = "".join(f"<tr{kind}>{line}</tr>" for kind, line in zip(kinds, lines, strict=True))
    identity = f' id="{name}"' if name else ""
    return f'<div class="scroll"><table{identity}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def matrix(lines: Sequence[Sequence[str]], name: str) -> str:
    """(row, column, what, what else) as rows and columns, with the words coloured by what they mean."""
    rows = list(dict.fromkeys(line[0] for line in lines))
    columns = list(dict.fromkeys(line[1] for line in lines))
    cells = {(line[0], line[1]): line[2:] for line in lines}
    made = []
    for row in rows:
        line = [f"<td><b>{html.escape(row)}</b></td>"]
        for column in columns:
            local, whole = cells.get((row, column), ("", ""))
            line.append(
                f"<td>updates {badge(local, _HIDES.get(local, 'open'))}<br>"
                f"model {badge(whole, _HIDES.get(whole, 'open'))}</td>"
                if local
                else "<td></td>"
            )
        made.append("".join(line))
    return _table(("scheme", *columns), made, name)


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], name: str = "", classes: Sequence[str] = ()
) -> str:
    """A table; numbers to the right, long texts with room."""
    lines = ["".join(_cell(cell) for cell in row) for row in rows]
    return _table(columns, lines, name, classes)


def _cell(text: str) -> str:
    number = text.removeprefix("-")[:1].isdigit() and " " not in text
    kind = ' class="number"' if number else ' class="long"' if len(text) > _LONG else ""
    return f"<td{kind}>{html.escape(text)}</td>"


def _figures(rows: Sequence[Row]) -> str:
    cells, kinds = [cells_of(row) for row in rows], [row.row for row in rows]
    return (
        "<h2>Figures</h2><p>rMSE and SSIM are medians; ASR is the share of images with SSIM of at least 0.9, with its "
        "exact 95 % confidence interval. L0 ignores the defence, L1 knows it but not its secrets, L2 colludes.</p>"
        + html_table((*COLUMNS, "also"), cells, "figures", kinds)
    )


def _truth(picture: Picture) -> str:
    return "" if picture.truth is None else image_tag(picture.truth, "true image")


def _gallery(rows: Sequence[Row]) -> str:
    shown = [row for row in rows if row.pictures]
    if not shown:
        return ""
    cards = []
    for row in shown:
        words = f"{row.scheme}, {row.defence}, {row.adversary}: {row.attack}"
        figures = "".join(
            f"<figure>{_truth(one)}{image_tag(one.found, 'reconstruction')}"
            f"<figcaption>{html.escape(one.caption)}</figcaption></figure>"
            for one in row.pictures
        )
        about = f'<div class="soft">{html.escape(f"{row.row} row, {row.target}")}</div>'
        cards.append(f'<div class="card"><h3>{html.escape(words)}</h3>{about}{figures}</div>')
    return (
        "<h2>Images</h2><p>The true image, where it is known, and to its right the reconstruction.</p>"
        f'<div class="gallery">{"".join(cards)}</div>'
    )
