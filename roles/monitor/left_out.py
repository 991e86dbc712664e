"""A party that waits outside says so: at first when a session should have taken it in, then less and less often.

Without a word it would knock for as long as the others go on without it, and its operator would think that it took
part. It cannot know why it is left out; the server's log says that.

Implements specs/guide.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.process.clock import monotonic

OUTSIDE = frozenset({"knocking", "greeting"})


@dataclass
class LeftOut:
    """How long a party has been outside; `first_s` is when it wonders, and after that each time as long again."""

    log: RoleLog
    first_s: float
    clock: Callable[[], float] = monotonic
    _since: float | None = None
    _next_s: float = 0.0

    def hear(self, phase: str) -> None:
        """Take in where the machine is now."""
        if phase not in OUTSIDE:
            self._since = None
            return
        now = self.clock()
        if self._since is None:
            self._since, self._next_s = now, self.first_s
        outside_s = now - self._since
        if outside_s >= self._next_s:
            self._next_s = 2 * outside_s
            self.log.say(
                "warning",
                text=f"in no session for {outside_s:.0f} s: the server is not running, waits for more parties, or goes "
                "on without this one; its log says which",
            )
