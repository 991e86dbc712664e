"""The words under which a forked process appears in `ps`: what was forked would bear its parent's for ever.

Linux shows what stands where the command line was put when the program was started. It may be written over, as far as
it reaches, so the nursery is started with a long last word that only makes room. Elsewhere titles stay as they are.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOM = "." * 1024
"""A word to end a command line with, where titles are to be written later."""
_STAT = Path("/proc/self/stat")
_FIELDS_BEFORE_ARGUMENTS = 45
"""Fields of /proc/self/stat between the name, in parentheses, and where the command line begins and ends."""


@dataclass(frozen=True)
class Title:
    """The place of this process's command line in memory; the same after a fork."""

    begin: int
    size: int

    @classmethod
    def find(cls, last_word: str) -> Title:
        """The place, if the command line ends with this word; else one without room, which cannot be written to."""
        try:
            fields = _STAT.read_text().rpartition(")")[2].split()
            begin, end = (int(text) for text in fields[_FIELDS_BEFORE_ARGUMENTS:][:2])
            shown = Path("/proc/self/cmdline").read_bytes()
        except (OSError, ValueError):
            return cls(0, 0)
        room = end - begin == len(shown) and shown.endswith(f"\0{last_word}\0".encode())
        return cls(begin, end - begin) if room else cls(0, 0)

    def write(self, words: Sequence[str]) -> None:
        """Show these words instead, as many as there is room for."""
        if self.size:
            shown = os.fsencode("\0".join(words))[: self.size - 1]
            ctypes.memmove(self.begin, shown.ljust(self.size, b"\0"), self.size)
