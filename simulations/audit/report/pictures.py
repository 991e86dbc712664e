"""Images and plots for the report, without a plotting library: PNG by hand, SVG as text."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(image: NDArray[np.floating[Any]]) -> bytes:
    """An image (channels, height, width) with pixels from 0 to 1, 1 or 3 channels, as a PNG file."""
    channels, height, width = image.shape
    if channels not in (1, 3):
        raise ValueError(f"an image has 1 or 3 channels, not {channels}")
    pixels = np.rint(np.clip(np.nan_to_num(image), 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    # Every line of a PNG begins with the number of its filter; 0 is none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def image_tag(image: NDArray[np.floating[Any]], words: str, side: int = 72) -> str:
    encoded = base64.b64encode(png(image)).decode()
    return (
        f'<img src="data:image/png;base64,{encoded}" alt="{html.escape(words)}" title="{html.escape(words)}" '
        f'width="{side}" height="{side}">'
    )


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


COLOURS = ("#1b6ca8", "#c44536", "#3a7d44", "#7b4b94", "#b8860b", "#444444")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 580, 300, 52, 44, 14, 210


@dataclass(frozen=True)
class Band:
    """A shaded stretch of the x axis."""

    start: float
    stop: float
    colour: str
    words: str


def plot(
    curves: Sequence[Curve], x_words: str, y_words: str, y_top: float = 1.0, bands: Sequence[Band] = ()
) -> str:
    """Lines with marks in one frame, as inline SVG."""
    xs = [x for curve in curves for x, _ in curve.points] + [band.stop for band in bands] or [1.0]
    low, high = min([0.0, *xs]), max([*xs, 1e-9])
    across, up = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - low) / (high - low or 1.0)
        return _LEFT + across * share, _TOP + up * (1 - min(max(y / y_top, 0.0), 1.0))

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">']
    for band in bands:
        (left, _), (right, _) = place(band.start, 0), place(band.stop, 0)
        parts.append(
            f'<rect x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{up}" '
            f'fill="{band.colour}" fill-opacity="0.16">'
            f"<title>{html.escape(band.words)}</title></rect>"
        )
    parts += _axes(low, high, y_top, across, up, x_words, y_words)
    for number, curve in enumerate(curves):
        colour = COLOURS[number // 2 % len(COLOURS)] if _paired(curves) else COLOURS[number % len(COLOURS)]
        parts += _drawn(curve, colour, number, place)
    return "".join([*parts, "</svg>"])


def _paired(curves: Sequence[Curve]) -> bool:
    """Whether every second curve is the dashed companion of the one before."""
    return len(curves) > 1 and all(curve.dashed == bool(i % 2) for i, curve in enumerate(curves))


def _axes(
    low: float, high: float, y_top: float, across: int, up: int, x_words: str, y_words: str
) -> list[str]:
    bottom = _TOP + up
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{_LEFT + across}" fill="none" class="axis"/>',
        f'<text x="{_LEFT + across / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{html.escape(x_words)}</text>',
        f'<text x="14" y="{_TOP + up / 2}" text-anchor="middle" transform="rotate(-90 14 {_TOP + up / 2})">'
        f"{html.escape(y_words)}</text>",
    ]
    for i in range(5):
        share = i / 4
        y, x = bottom - up * share, _LEFT + across * share
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{across}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{y_top * share:.2g}</text>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{low + (high - low) * share:.2g}</text>'
        )
    return parts


def _drawn(curve: Curve, colour: str, number: int, place: Any) -> list[str]:
    spots = [place(x, y) for x, y in sorted(curve.points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
    y = _TOP + 12 + 17 * number
    left = _WIDTH - _RIGHT + 12
    return [
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>',
        *(f'<circle cx="{x:.1f}" cy="{y_:.1f}" r="3" fill="{colour}"/>' for x, y_ in spots),
        f'<path d="M{left} {y}h18" stroke="{colour}" stroke-width="2"{dashes}/>',
        f'<text x="{left + 23}" y="{y + 4}">{html.escape(curve.name)}</text>',
    ]
