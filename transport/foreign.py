"""The one place where a failure to read foreign bytes becomes a typed defect, whatever raised it.

A broker, everyone with a login at it, and every member of a roster can hand us any bytes. The parsers refuse what they
know to be wrong; this seam stands behind them, so that what nobody thought of (a lone surrogate in a JSON text, a
number that fits no integer) costs its sender the message and us a count, never the process. It stands around reading
only: a machine that fails on a message that was read, verified and in bounds is a mistake of ours, after which its
state is not known, and that still ends the run.

Defects are counted by what could not be read, and told at a bounded rate: senders are named by anyone who likes, and a
line for each message would let an outsider fill a disk.

Implements specs/transport.md, section 12.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from veilsum.transport.printable import printable

EVERY_S = 60.0
MOST_LINES = 10
"""Of one kind, so many lines in `EVERY_S` seconds, each about something else."""
LONGEST_WHY = 300

T = TypeVar("T")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Defect:
    """Foreign bytes that could not be read: what they were to be, who is named as their sender (a hint), and why.

    `error` is what reading raised, if it raised; `count` is how many defects of this kind are told with this one line.
    """

    what: str
    sender_hint: str
    why: str
    error: Exception | None = None
    count: int = 1

    def __str__(self) -> str:
        more = f" (and {self.count - 1} more since the last line)" if self.count > 1 else ""
        whose = f" in the name of {self.sender_hint!r}" if self.sender_hint else ""
        return printable(f"a {self.what}{whose} is dropped: {self.why}{more}")


Tell: TypeAlias = Callable[[Defect], None]


def _warn(defect: Defect) -> None:
    _logger.warning("%s", defect)


@dataclass(slots=True)
class _Window:
    began: float
    untold: int = 0
    told: set[Hashable] = field(default_factory=set)


class RateLimit:
    """At most `MOST_LINES` lines of a kind in `EVERY_S` seconds, and never two about the same in that time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def admit(self, kind: str, about: Hashable) -> int | None:
        """None where the line is to be left out, else how many of its kind were left out before it."""
        now = self._clock()
        window = self._windows.get(kind)
        if window is None or now >= window.began + EVERY_S:
            window = self._windows[kind] = _Window(now, window.untold if window is not None else 0)
        if about in window.told or len(window.told) >= MOST_LINES:
            window.untold += 1
            return None
        window.told.add(about)
        untold, window.untold = window.untold, 0
        return untold

    def left_out(self) -> dict[str, int]:
        """How many lines of each kind were left out and are not told yet; from now on they count as told."""
        counts = {kind: window.untold for kind, window in self._windows.items() if window.untold}
        for window in self._windows.values():
            window.untold = 0
        return counts


class ForeignReader:
    """Reads foreign bytes for one process: whatever reading raises is counted, told sparingly, and gone."""

    def __init__(
        self,
        tell: Tell = _warn,
        expected: tuple[type[Exception], ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`expected` is what bytes without any defect may raise: it is neither counted nor told."""
        self.counts: Counter[str] = Counter()
        self._tell = tell
        self._expected = expected
        self._limit = RateLimit(clock)

    def read(self, what: str, sender_hint: str, parse: Callable[[], T]) -> T | None:
        """What `parse` makes of the bytes, or None if that failed."""
        try:
            return parse()
        except self._expected:
            return None
        except Exception as error:  # noqa: BLE001 - the seam: no exception that foreign bytes raise goes on
            self.note(what, sender_hint, error)
            return None

    def note(self, what: str, sender_hint: str, error: Exception) -> None:
        """Count a failure that showed later than at reading."""
        why = f"{type(error).__name__}: {error}"[:LONGEST_WHY]
        about = (type(error), getattr(error, "reason", None))
        self._count(Defect(what, sender_hint, why, error), about)

    def refuse(self, what: str, sender_hint: str, why: str) -> None:
        """Count bytes that were understood and are not wanted."""
        self._count(Defect(what, sender_hint, why), why)

    def close(self) -> None:
        """Tell how many were not told."""
        for what, count in self._limit.left_out().items():
            self._tell(Defect(what, "", "too many to tell one by one", None, count))

    def _count(self, defect: Defect, about: Hashable) -> None:
        self.counts[defect.what] += 1
        untold = self._limit.admit(defect.what, (defect.sender_hint, about))
        if untold is not None:
            self._tell(replace(defect, count=1 + untold))
