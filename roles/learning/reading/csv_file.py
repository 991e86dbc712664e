"""A CSV file as inputs and targets: numbers, categories as one-hot columns, and nothing guessed.

The parties of a federation must make the same columns of different files. So nothing is taken from the rows:
categories, names of classes, constants of scaling and what stands for a missing value are arguments, and a cell that
they do not cover is refused with its line and its column.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import numpy as np

from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.reading.arrays import AnyArray

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None", "?")
"""Cells that hold no value."""
PACKED = ".gz"
MOST_UNPACKED = 1 << 32
"""So many characters a packed file may have: a small one can unpack to more than any disk holds."""
LONGEST_LINE = 1 << 26
_SEPARATORS = (",", ";", "\t", "|")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Columns:
    """What is made of the columns of a file; every name that is not there is refused."""

    target: str
    inputs: Sequence[str] | None = None
    """The input columns in their order; all but the target, in the order of the file, if not given."""
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Sequence[str] | None = None
    scale: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    missing: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (_, deviation) in self.scale.items():
            if not deviation > 0:
                raise TaskError(f"scale of {name!r}: its deviation must be above 0, not {deviation!r}")


def read_csv(path: Path, columns: Columns, delimiter: str) -> tuple[AnyArray, AnyArray]:
    """All rows of a file: float32 inputs, and int64 labels where classes are named, float32 values where not."""
    rows: list[list[float]] = []
    targets: list[float] = []
    lines = _lines(path, delimiter)
    _, header = next(lines, (1, []))
    if not header:
        raise TaskError(
            f"{path} is empty: its first line must name the columns, {columns.target!r} among them"
        )
    names = _input_names(path, header, columns, delimiter)
    for number, cells in lines:
        if len(cells) != len(header):
            raise TaskError(f"{path}, line {number}: {len(cells)} cells, and the header has {len(header)}")
        row = dict(zip(header, cells, strict=True))
        place = f"{path}, line {number}"
        rows.append([value for name in names for value in _values(place, name, row[name], columns)])
        targets.append(_target(place, row[columns.target], columns))
    if not rows:
        raise TaskError(f"{path} has no row of data: a party needs at least one sample")
    return np.array(rows, np.float32), np.array(targets, np.float32 if columns.classes is None else np.int64)


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The header and each row that is not blank, with the number of its last line."""
    try:
        with _opened(path) as file:
            lines = _bounded(path, file) if path.suffix == PACKED else file
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            yield from ((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{path} is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from error
    except (csv.Error, TypeError) as error:
        hint = _other_separator(path, delimiter)
        raise TaskError(f"{path} is no CSV file with {delimiter!r} between cells: {error}{hint}") from error


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The text of a file, unpacked if its name ends in .gz; the mark that spreadsheets put first is left out."""
    opened = gzip.open if path.suffix == PACKED else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise TaskError(f"{path} cannot be unpacked: {error}") from error


def _bounded(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file that nobody knows the size of."""
    size = 0
    while line := file.readline(LONGEST_LINE):
        size += len(line)
        if len(line) == LONGEST_LINE:
            raise TaskError(
                f"{path} has a line of {LONGEST_LINE} characters or more: it is no table; look into it"
            )
        if size > MOST_UNPACKED:
            raise TaskError(f"{path} unpacks to more than {MOST_UNPACKED} characters: unpack it yourself")
        yield line


def _other_separator(path: Path, delimiter: str) -> str:
    """What to say if the header has another separator oftener than the one that was named."""
    try:
        with _opened(path) as file:
            header = file.readline(LONGEST_LINE)
    except (TaskError, UnicodeDecodeError):
        return ""
    likely = max(_SEPARATORS, key=header.count)
    if len(delimiter) == 1 and header.count(likely) <= header.count(delimiter):
        return ""
    return (
        f"; its header has {likely!r} between names: if that is so, delimiter={likely!r}"
        if likely in header
        else ""
    )


def _input_names(path: Path, header: list[str], columns: Columns, delimiter: str) -> list[str]:
    """The input columns, once it is clear that all named columns are there, each once."""
    there = Counter(header)
    twice = sorted(name for name, times in there.items() if times > 1)
    if twice:
        raise TaskError(f"{path} has two columns called {', '.join(map(repr, twice))}: rename one")
    names = [name for name in header if name != columns.target]
    chosen = names if columns.inputs is None else list(columns.inputs)
    named = [columns.target, *chosen, *columns.categories, *columns.scale, *columns.missing]
    absent = dict.fromkeys(repr(name) for name in named if name not in there)
    if absent:
        has, hint = ", ".join(map(repr, header)), _other_separator(path, delimiter)
        raise TaskError(f"{path} has no column {', '.join(absent)}; it has {has}{hint}")
    if columns.target in chosen:
        raise TaskError(
            f"{path}: the target {columns.target!r} is among the input columns: leave it out there"
        )
    if not chosen:
        raise TaskError(f"{path} has no column besides the target {columns.target!r}")
    return chosen


def _values(place: str, name: str, text: str, columns: Columns) -> list[float]:
    """The inputs that one cell makes: a number, or a 1 among zeros."""
    filled = _filled(place, name, text, columns)
    if name not in columns.categories:
        return [_number(place, name, filled, "categories", columns.scale.get(name, (0.0, 1.0)))]
    known = list(columns.categories[name])
    position = _position(place, name, filled, known, "categories")
    return [float(index == position) for index in range(len(known))]


def _target(place: str, text: str, columns: Columns) -> float:
    name = columns.target
    if columns.classes is None:
        return _number(place, name, _filled(place, name, text, columns), "classes")
    return _position(place, name, text, list(columns.classes), "classes")


def _filled(place: str, name: str, text: str, columns: Columns) -> str | float:
    """The cell, or what stands for a missing value in its column."""
    if text not in MISSING or text in columns.categories.get(name, ()):
        return text
    if name not in columns.missing:
        raise TaskError(
            f"{place}, column {name!r}: the value is missing ({text!r}): complete the row or remove it, or say what "
            f"stands for it with missing={{{name!r}: VALUE}}"
        )
    return columns.missing[name]


def _number(
    place: str, name: str, text: str | float, argument: str, scale: tuple[float, float] = (0.0, 1.0)
) -> float:
    try:
        # Python reads 1_000 as a thousand, and no table means that.
        value = (float("" if "_" in str(text) else text) - scale[0]) / scale[1]
    except ValueError:
        raise TaskError(
            f"{place}, column {name!r}: {text!r} is not a number; if it is a name, list all of them in {argument}"
        ) from None
    if not abs(value) <= _LARGEST:
        raise TaskError(f"{place}, column {name!r}: {text!r} is beyond what float32 holds")
    return value


def _position(place: str, name: str, text: str | float, known: list[str], argument: str) -> int:
    if text not in known:
        raise TaskError(
            f"{place}, column {name!r}: {text!r} is not one of {', '.join(known)}: correct it, or add it to {argument} "
            "at every party"
        )
    return known.index(str(text))
