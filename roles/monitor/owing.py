"""Who has not acknowledged what was sent to it, and for how long: whoever only is about to is not late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from veilsum.roles.process.clock import Clock, monotonic

LATE_AFTER_S = 3.0
"""Every message is unacknowledged for a moment; a status that is told in that moment accuses nobody."""


@dataclass
class Owing:
    """The messages under way, oldest first."""

    clock: Clock = monotonic
    _under_way: dict[int, tuple[str, float]] = field(default_factory=dict)
    _count: int = 0

    @contextmanager
    def by(self, receiver: str) -> Iterator[None]:
        """A message is under way to a receiver, until it is acknowledged or given up."""
        self._count += 1
        number = self._count
        self._under_way[number] = receiver, self.clock()
        try:
            yield
        finally:
            del self._under_way[number]

    def receivers(self) -> frozenset[str]:
        """Everyone to whom something is under way."""
        return frozenset(receiver for receiver, _ in self._under_way.values())

    def late(self) -> tuple[str, ...]:
        """Who has left a message unacknowledged for longer than the transport needs."""
        since = self.clock() - LATE_AFTER_S
        return tuple(sorted({receiver for receiver, at in self._under_way.values() if at <= since}))
