"""The report as one HTML file that needs nothing else: verdicts, plots, pictures, threat model, command."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veilsum import __version__
from veilsum.simulations.audit.pictures import image_tag
from veilsum.simulations.audit.rows import COLUMNS, Picture, Row, cells_of
from veilsum.simulations.audit.verdicts import Verdict, verdicts, warnings

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2227; max-width: 75rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: #f2f4f6; border-radius: 4px; }
code { padding: .1rem .3rem; } pre { padding: .8rem 1rem; white-space: pre-wrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; }
th, td { border-bottom: 1px solid #dde2e6; padding: .32rem .6rem; text-align: left; vertical-align: top; }
th { background: #f2f4f6; } td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.verdict { font-weight: 600; border-radius: 4px; padding: .05rem .45rem; white-space: nowrap; }
.leaks { background: #f6d5d1; color: #7c1d12; } .holds { background: #d4ecd8; color: #14532d; }
.partly { background: #fbe8c6; color: #6b4500; } .open { background: #e3e4ea; color: #333a4d; }
.null td, .oracle td, .undefended td { color: #5b6670; }
.warning { border-left: 4px solid #c47f17; background: #fdf5e6; padding: .5rem .9rem; margin: .5rem 0; }
figure { display: inline-block; margin: .35rem .6rem .35rem 0; text-align: center; }
figure img { image-rendering: pixelated; border: 1px solid #cfd6dc; margin-right: 2px; }
figcaption { font-size: 12px; color: #5b6670; } svg text { font: 12px system-ui, sans-serif; fill: #333; }
"""
_WORDS = {
    "leaks": "the adversary gets what the data owner would not show",
    "partly": "more than an attack on noise gets, less than the image",
    "holds": "no better than an attack on noise",
    "open": "the attack fails, but it also fails with the secret given: nothing is shown either way",
}


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
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(render(report), encoding="utf-8")
    draft.replace(path)


def render(report: Report) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(report.title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(report.title)}</h1>",
        f"<p>veilsum {__version__}, scale {html.escape(report.scale)}. Made by</p>",
        f"<pre>{html.escape(report.command)}</pre>",
    ]
    if not report.complete:
        parts.append('<p class="warning">Interrupted: these are the rows that were done.</p>')
    parts += [f'<p class="warning">{html.escape(text)}</p>' for text in warnings(report.rows)]
    if report.rows:
        parts.append(_verdict_table(verdicts(report.rows)))
    parts += [f"<h2>{html.escape(one.title)}</h2>{one.body}" for one in report.sections]
    if report.rows:
        parts += [_figures(report.rows), _gallery(report.rows)]
    threats = list(dict.fromkeys(row.threat for row in report.rows if row.threat))
    if threats:
        parts.append("<h2>Threat model</h2>")
        parts += [f"<pre>{html.escape(text)}</pre>" for text in threats]
    return "\n".join([*parts, "</body></html>"])


def _verdict_table(found: Sequence[Verdict]) -> str:
    settings = list(dict.fromkeys((one.scheme, one.defence) for one in found))
    adversaries = list(dict.fromkeys(one.adversary for one in found))
    cells = {(one.scheme, one.defence, one.adversary): one for one in found}
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("scheme", "defence", *adversaries))
    lines = []
    for scheme, defence in settings:
        line = [f"<td>{html.escape(scheme)}</td><td>{html.escape(defence)}</td>"]
        for adversary in adversaries:
            one = cells.get((scheme, defence, adversary))
            line.append(
                "<td></td>" if one is None else f"<td>{_badge(one.word)} {html.escape(one.reason)}</td>"
            )
        lines.append(f"<tr>{''.join(line)}</tr>")
    legend = "<br>".join(f"{_badge(word)} {text}" for word, text in _WORDS.items())
    return (
        '<h2>Verdicts</h2><div class="scroll"><table id="verdicts">'
        f"<tr>{head}</tr>{''.join(lines)}</table></div><p>{legend}</p>"
    )


def _badge(word: str) -> str:
    return f'<span class="verdict {word}">{word}</span>'


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], name: str = "", classes: Sequence[str] = ()
) -> str:
    """A table; numbers to the right."""
    head = "".join(f"<th>{html.escape(one)}</th>" for one in columns)
    lines = []
    for place, row in enumerate(rows):
        cells = "".join(
            f'<td class="number">{html.escape(cell)}</td>'
            if cell[:1].isdigit() and " " not in cell
            else f"<td>{html.escape(cell)}</td>"
            for cell in row
        )
        kind = f' class="{classes[place]}"' if classes else ""
        lines.append(f"<tr{kind}>{cells}</tr>")
    identity = f' id="{name}"' if name else ""
    return f'<div class="scroll"><table{identity}><tr>{head}</tr>{"".join(lines)}</table></div>'


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
    parts = ["<h2>Images</h2><p>The true image, where it is known, and to its right the reconstruction.</p>"]
    for row in shown:
        words = f"{row.scheme}, {row.defence}, {row.adversary}, {row.attack} ({row.row}, {row.target})"
        figures = "".join(
            f"<figure>{_truth(one)}{image_tag(one.found, 'reconstruction')}"
            f"<figcaption>{html.escape(one.caption)}</figcaption></figure>"
            for one in row.pictures
        )
        parts.append(f"<div><strong>{html.escape(words)}</strong><br>{figures}</div>")
    return "".join(parts)
