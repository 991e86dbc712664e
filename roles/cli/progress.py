"""Progress for work that takes longer than two seconds: one line on standard error that tells how far it is."""

from __future__ import annotations

import sys
import time
from typing import TextIO

QUIET_S = 2.0
LINE_EVERY_S = 10.0


class Progress:
    """Counts steps towards a total. Silent for the first two seconds; on a terminal the line is rewritten."""

    def __init__(self, label: str, total: int, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = max(total, 1)
        self._stream = stream if stream is not None else sys.stderr
        self._started = time.monotonic()
        self._shown_at = self._started
        self._shown = False

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        elapsed = now - self._started
        terminal = self._stream.isatty()
        if elapsed < QUIET_S or (not terminal and now - self._shown_at < LINE_EVERY_S):
            return
        left = elapsed / done * (self._total - done) if done else None
        remaining = f", about {left:.0f} s left" if left is not None else ""
        text = f"{self._label}: {done}/{self._total} {note}{remaining}"
        self._stream.write(f"\r\x1b[2K{text}" if terminal else f"{text}\n")
        self._stream.flush()
        self._shown_at, self._shown = now, True

    def close(self) -> None:
        if self._shown and self._stream.isatty():
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
