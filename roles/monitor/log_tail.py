"""Reading the logs of a federation's processes while they are written, and after.

Each call reads what is new, in bounded pieces. Lines that are too long or no JSON object are passed over: a user's own
code prints into the same files. A file that became shorter, or another one, is read from its start.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_FILES = 2000
_MOST_AT_ONCE = 4 << 20
_LONGEST_LINE = 1 << 20
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

    def facts(self) -> list[tuple[str, dict[str, Any]]]:
        """What is new since the last call: whose log, and the fact, by the time that the facts name."""
        try:
            files = sorted(self.folder.glob("*.log"))[:MOST_FILES]
        except OSError:
            return []
        found = [(path.stem, fact) for path in files for fact in self._read(path)]
        return sorted(found, key=lambda one: str(one[1].get("at", "")))

    def _read(self, path: Path) -> Iterator[dict[str, Any]]:
        try:
            with os.fdopen(os.open(path, _WITHOUT_WAITING), "rb") as file:
                known = os.fstat(file.fileno())
                if not stat.S_ISREG(known.st_mode):
                    return
                reading = self._readings.get(path)
                if reading is None or reading.inode != known.st_ino or reading.offset > known.st_size:
                    reading = self._readings[path] = _Reading(known.st_ino)
                file.seek(reading.offset)
                while piece := file.read(_MOST_AT_ONCE):
                    reading.offset += len(piece)
                    yield from _facts_in(reading, piece)
        except OSError:
            return


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
