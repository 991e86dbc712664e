"""A CSV file as inputs and targets: numbers, categories as one-hot columns, and nothing guessed.

The parties of a federation must make the same columns of different files. So nothing is taken from the rows:
categories, names of classes, constants of scaling and what stands for a missing value are arguments, and a cell that
they do not cover is refused with its line and its column.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.reading.arrays import AnyArray

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None", "?")
"""Cells that hold no value."""
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
    names = _input_names(path, header, columns)
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
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            yield from ((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{path} is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from error
    except (csv.Error, TypeError) as error:
        raise TaskError(f"{path} is no CSV file with {delimiter!r} between cells: {error}") from error


def _input_names(path: Path, header: list[str], columns: Columns) -> list[str]:
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
        raise TaskError(f"{path} has no column {', '.join(absent)}; it has {', '.join(map(repr, header))}")
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
