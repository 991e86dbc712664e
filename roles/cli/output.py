"""What a command leaves behind: a table for people and, with `--json FILE`, the same figures for programs.

`-` is standard output; the table then moves to standard error, so that a pipe receives JSON alone. A file appears
whole or not at all, and what is no regular file is written through (output_file.py). A folder that does not exist is
refused before the work, not after it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilsum.roles.cli.output_file import write_output
from veilsum.transport.printable import json_text, printable, printable_lines

STANDARD_OUTPUT = "-"
SCHEMA = 2
"""What every JSON document says of its own form: since 2, rounds and attempts are counted from 1."""


@dataclass(frozen=True)
class Table:
    """Aligned text: the first column to the left, the others to the right unless they are words.

    Cells may be what others sent: what is not printable is shown escaped.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def render(self) -> str:
        cells = [[printable(cell) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        numeric = [i > 0 and all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        lines = [_line(row, widths, numeric) for row in cells]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([printable(self.title), "", lines[0], rule, *lines[1:]]) + "\n"


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=_writable_target,
        help="also write the figures as JSON; - is standard output (the table then goes to standard error)",
    )


def publish(text: str, figures: Mapping[str, Any], json_target: str | None) -> None:
    """Show the text to the person and hand the figures to the program, each where it belongs."""
    screen = sys.stderr if json_target == STANDARD_OUTPUT else sys.stdout
    encoding = screen.encoding or "utf-8"
    screen.write(printable_lines(text).encode(encoding, "backslashreplace").decode(encoding))
    if json_target is None:
        return
    document = json_text(_finite({"schema": SCHEMA, **figures}), indent=2, allow_nan=False) + "\n"
    if json_target == STANDARD_OUTPUT:
        sys.stdout.write(document)
        return
    write_output(Path(json_target), document)


def file_target(text: str) -> Path:
    """A file that can be written later: refused now if its folder is missing, or if it is a folder itself."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text} does not exist: create it first")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    return path


def _writable_target(text: str) -> str:
    return text if text == STANDARD_OUTPUT else str(file_target(text))


def _finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN: they become null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text[:1] in "-+" or text in ("", "inf")


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    cells = [
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(row, widths, numeric, strict=True)
    ]
    return "  ".join(cells).rstrip()
