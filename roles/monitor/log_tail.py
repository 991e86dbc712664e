"""Reading the logs of a federation's processes while they are written, and after.

However long the logs are, a small piece of each is in memory, and a call ends after so many facts: the next one goes
on where it ended. Facts come in the order of the times that they name, as far as each log is in that order.
Lines that are too long or no JSON object are passed over: a user's own code prints into the same files. A file that
became shorter, or another one, is read from its start.
"""

from __future__ import annotations

import heapq
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

MOST_FILES = 2000
MOST_FACTS = 100_000
"""So many facts at the most come of one call."""
_PIECE = 64 << 10
_LONGEST_LINE = 1 << 20
Told: TypeAlias = tuple[str, dict[str, Any]]
"""Whose log it stands in, and the fact."""
_WITHOUT_WAITING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe under the name of a log must not keep us waiting."""


@dataclass
class _Reading:
    """How far a file was read, and the beginning of the line that was not complete then."""

    inode: int
    offset: int = 0
    begun: bytes = b""
    dropping: bool = False


@dataclass
class LogTail:
    """The logs of a folder, each `NAME.log`."""

    folder: Path
    _readings: dict[Path, _Reading] = field(default_factory=dict)
    _going_on: Iterator[Told] | None = None

    def facts(self) -> Iterator[Told]:
        """What is new since the last call, or was left by it."""
        if self._going_on is None:
            self._going_on = heapq.merge(*map(self._read, self._files()), key=_named_time)
        taken = 0
        for told in islice(self._going_on, MOST_FACTS):
            taken += 1
            yield told
        if taken < MOST_FACTS:
            self._going_on = None

    def _files(self) -> list[Path]:
        try:
            return sorted(self.folder.glob("*.log"))[:MOST_FILES]
        except OSError:
            return []

    def _read(self, path: Path) -> Iterator[Told]:
        while piece := self._next_piece(path):
            for fact in _facts_in(self._readings[path], piece):
                yield path.stem, fact

    def _next_piece(self, path: Path) -> bytes:
        """Opened for each piece: there may be more logs than a process may hold open."""
        try:
            with os.fdopen(os.open(path, _WITHOUT_WAITING), "rb") as file:
                known = os.fstat(file.fileno())
                if not stat.S_ISREG(known.st_mode):
                    return b""
                reading = self._readings.get(path)
                if reading is None or reading.inode != known.st_ino or reading.offset > known.st_size:
                    reading = self._readings[path] = _Reading(known.st_ino)
                file.seek(reading.offset)
                piece = file.read(_PIECE)
        except OSError:
            return b""
        reading.offset += len(piece)
        return piece


def _named_time(told: Told) -> str:
    return str(told[1].get("at", ""))


def _facts_in(reading: _Reading, piece: bytes) -> Iterator[dict[str, Any]]:
    *lines, rest = piece.split(b"\n")
    for number, line in enumerate(lines):
        whole = reading.begun + line if number == 0 else line
        dropped = number == 0 and reading.dropping
        if not dropped and len(whole) <= _LONGEST_LINE:
            yield from _fact_of(whole)
    if lines:
        reading.begun, reading.dropping = b"", False
    reading.begun += rest
    if len(reading.begun) > _LONGEST_LINE:
        reading.begun, reading.dropping = b"", True


def _fact_of(line: bytes) -> Iterator[dict[str, Any]]:
    if not line.startswith(b"{"):
        return
    try:
        fact = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(fact, dict) and isinstance(fact.get("fact"), str):
        yield fact
