"""Progress for work that takes longer than two seconds, on standard error: how far it is, and lines to keep.

On a terminal the line that tells how far it is is drawn anew each time, and what is kept scrolls away above it.
Elsewhere that line comes every ten seconds, and what is kept at once; but of what is kept within half a second of
the last line only the newest, so that a log stays readable however quick the steps are.
"""

from __future__ import annotations

import sys
from typing import TextIO

from veilsum.roles.process.clock import Clock, monotonic

QUIET_S = 2.0
LINE_EVERY_S = 10.0
KEPT_EVERY_S = 0.5
EARLIER = 20
"""How many lines of the quiet time are told at its end, off a terminal."""
_CLEAR = "\r\x1b[2K"


class Progress:
    """Counts steps towards a total. Silent for the first two seconds, and then tells what was kept in them."""

    def __init__(
        self, label: str, total: int, stream: TextIO | None = None, clock: Clock = monotonic
    ) -> None:
        self._label = label
        self._total = max(total, 1)
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._started = self._shown_at = clock()
        self._shown = False
        self._kept: list[str] = []
        self._done, self._note = 0, ""

    def update(self, done: int, note: str = "", keep: str = "") -> None:
        """So much is done; `keep` is a line that stays readable."""
        self._done, self._note = done, note
        if keep:
            self._kept.append(f"{self._label}: {keep}")
            self.tick()
        elif self._is_due(LINE_EVERY_S):
            self._write(self._take_kept())

    def tick(self) -> None:
        """Time has passed: what was kept is shown if it is due."""
        if self._kept and self._is_due(KEPT_EVERY_S if self._shown else 0.0):
            self._write(self._take_kept())

    def close(self) -> None:
        """Nothing more comes. What is kept is complete, and the line is gone."""
        if not self._shown:
            return
        lines = self._take_kept()
        if self._stream.isatty():
            self._stream.write(_CLEAR)
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()

    def _is_due(self, every: float) -> bool:
        now = self._clock()
        waits = 0.0 if self._stream.isatty() else every
        return now - self._started >= QUIET_S and now - self._shown_at >= waits

    def _take_kept(self) -> list[str]:
        most = len(self._kept) if self._stream.isatty() else 1 if self._shown else EARLIER
        lines, self._kept = self._kept[-most:], []
        return lines

    def _write(self, lines: list[str]) -> None:
        now = self._clock()
        elapsed = now - self._started
        left = elapsed / self._done * (self._total - self._done) if self._done else None
        remaining = f", about {left:.0f} s left" if left else ""
        line = f"{self._label}: {self._done}/{self._total} {self._note}{remaining}"
        if self._stream.isatty():
            self._stream.write(_CLEAR + "".join(f"{one}\n" for one in lines) + line)
        elif lines:
            self._stream.write("\n".join(lines) + f"{remaining}\n")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()
        self._shown_at, self._shown = now, True
