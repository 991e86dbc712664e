"""Charts as SVG text inside a page: they scale with the page, need no network, and say in words what they show.

A chart has no style of its own, only attributes: a page may forbid inline styles, and its ink is the page's, by day
and by night.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's colours: they stay apart for eyes that do not see red from green. Line styles say it once more.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":")
NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
INK = "#000000"
"""What is drawn in black is shown in the colour of the page's text."""
SMALL = (4.6, 2.8)
"""The size at which a phone shows letters as large as the rest of its page."""
MARKS = ("o", "s", "^", "D", "v", "P", "X")
MOST_LETTERS, MOST_BESIDE = 64, 34
"""Of a label, and of one beside the axes; longer ones would leave a chart no room. What it says in words is whole."""
HATCHES = ("", "//", "..", "xx")

Points = Sequence[tuple[float, float]]


class Chart(str):
    """An `svg` element, which a template takes as it is, with the heading that a page may show above it."""

    heading: str

    def __new__(cls, text: str, heading: str = "") -> Chart:
        made = super().__new__(cls, text)
        made.heading = heading
        return made

    def __html__(self) -> str:
        """What a template puts into a page: all text of a chart was escaped when it was drawn."""
        return str(self)


@dataclass(frozen=True)
class Band:
    """A shaded stretch of the lower axis, named in the legend and hatched for eyes that do not see its colour."""

    start: float
    stop: float
    words: str
    colour: str
    hatch: str = ""


def curves(
    lines: Mapping[str, Points], *, title: str, across: str, up: str, size: tuple[float, float] = (7.0, 3.2)
) -> Chart:
    """One curve per name over a common axis of whole numbers, such as rounds."""
    figure, axes = _figure(size, across, up)
    for index, (name, points) in enumerate(lines.items()):
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=_literal(name),
            color=COLOURS[index % len(COLOURS)],
            linestyle=DASHES[index // len(COLOURS) % len(DASHES)],
            marker="o" if len(points) < 40 else None,
            markersize=3,
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=9)
    ends = "; ".join(f"{name} ends at {points[-1][1]:.4g}" for name, points in lines.items() if points)
    return _svg(figure, title, f"{up} over {across}. {ends}" if ends else "no figures yet")


def paired_curves(
    pairs: Mapping[str, Mapping[str, Points]],
    *,
    title: str,
    across: str,
    up: str,
    bands: Sequence[Band] = (),
    size: tuple[float, float] = (5.2, 4.2),
) -> Chart:
    """Curves from 0 to 1 in families: a colour and a mark for each family, a line style for each of its members."""
    figure, axes = _figure(size, across, up)
    for band in bands:
        axes.axvspan(
            band.start,
            band.stop,
            facecolor=band.colour,
            alpha=0.14,
            hatch=band.hatch,
            edgecolor=band.colour,
            label=band.words,
        )
    ends = []
    for index, (family, members) in enumerate(pairs.items()):
        for style, (name, points) in zip(DASHES, members.items(), strict=False):
            ordered = sorted(points)
            label = f"{family}, {name}" if name else family
            axes.plot(
                [x for x, _ in ordered],
                [y for _, y in ordered],
                label=_literal(label),
                color=COLOURS[index % len(COLOURS)],
                linestyle=style,
                marker=MARKS[index % len(MARKS)],
                markersize=4,
            )
            ends += [f"{label} from {ordered[0][1]:.2f} to {ordered[-1][1]:.2f}"] if ordered else []
    axes.set_ylim(-0.03, 1.05)
    _legend_below(figure)
    return _svg(figure, title, f"{up} over {across}. {'; '.join(ends)}" if ends else "no figures yet")


def grouped_bars(
    groups: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    up: str,
    mark: tuple[float, str] | None = None,
    width: float = 5.0,
) -> Chart:
    """Bars lying on their sides, one of each series in every group, with its figure at its end; `mark` is a line."""
    series = list(dict.fromkeys(name for bars_of in groups.values() for name in bars_of))
    deep = 0.8 / max(len(series), 1)
    figure, axes = _figure((width, 1.4 + 0.3 * max(len(series), 1) * len(groups)), up, "")
    for index, name in enumerate(series):
        places = [
            (place + (index - (len(series) - 1) / 2) * deep, bars_of[name])
            for place, bars_of in enumerate(groups.values())
            if name in bars_of
        ]
        drawn = axes.barh(
            [place for place, _ in places],
            [value for _, value in places],
            deep * 0.92,
            label=_literal(name),
            color=COLOURS[index % len(COLOURS)],
            hatch=HATCHES[index % len(HATCHES)],
            edgecolor="white",
        )
        axes.bar_label(drawn, fmt="%.2f", padding=3, fontsize=9)
    if mark is not None:
        axes.axvline(mark[0], color=INK, linestyle=":", label=_literal(mark[1]))
    axes.set_yticks(range(len(groups)), [_literal(name, MOST_BESIDE) for name in groups])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    _legend_below(figure)
    told = (
        f"{group}: {', '.join(f'{name} {value:.2f}' for name, value in bars_of.items())}"
        for group, bars_of in groups.items()
    )
    return _svg(figure, title, "; ".join(told) or "no figures yet")


def _legend_below(figure: Figure) -> None:
    """Where it covers nothing; in two columns if its words are short enough for them."""
    labels = figure.axes[0].get_legend_handles_labels()[1]
    columns = 2 if max(map(len, labels), default=0) <= MOST_BESIDE else 1
    figure.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=9)


def _style() -> AbstractContextManager[None]:
    """Text stays text, and equal figures give equal bytes."""
    return mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "veilsum", "font.family": "sans-serif", "font.size": 11}
    )


def _figure(size: tuple[float, float], across: str, up: str) -> tuple[Figure, Axes]:
    with _style():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
    axes.set_xlabel(_literal(across))
    axes.set_ylabel(_literal(up))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)
    return figure, axes


def _literal(text: str, most: int = MOST_LETTERS) -> str:
    """Text as it stands, as far as a label has room: a dollar sign would start a formula, and a leading underscore
    hides a curve's name."""
    room = text if len(text) <= most else f"{text[: most - 1]}…"
    shown = room.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _svg(figure: Figure, title: str, words: str) -> Chart:
    """The figure as an `svg` element with a name and a description for readers who do not see it."""
    out = io.StringIO()
    with _style():
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    opened = text.index(">", text.index("<svg"))
    width, height = figure.get_size_inches() * 72
    head = (
        f'<svg role="img" class="chart" aria-label="{escape(title)}" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" {NAMESPACES} stroke-linejoin="round" stroke-linecap="butt">'
    )
    named = f"<title>{escape(title)}</title><desc>{escape(words)}</desc>"
    return Chart(head + named + _without_styles(text[opened + 1 :]), title)


def _without_styles(drawn: str) -> str:
    """The same drawing with attributes for styles, in the page's own letters, and without what only tools read."""
    for part in ("metadata", "style"):
        drawn = re.sub(rf"<{part}\b.*?</{part}>\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<g id=\"[^\"]*\"", "<g", drawn)
    drawn = re.sub(r" style=\"([^\"]*)\"", _attributes, drawn)
    return drawn.replace(INK, "currentColor").replace("<text", '<text fill="currentColor"')


def _attributes(style: re.Match[str]) -> str:
    pairs = [declaration.partition(":") for declaration in style[1].split(";") if declaration.strip()]
    named = [(name.strip(), value.strip()) for name, _, value in pairs]
    return "".join(f' {name}="{value}"' for name, value in named if name != "font-family")
