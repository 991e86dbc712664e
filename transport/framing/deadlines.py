"""The earliest of many deadlines that change often: a heap that drops outdated entries as they surface."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Deadlines(Generic[Key]):
    """At most one deadline per key."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0

    def set(self, key: Key, at: float | None) -> None:
        """Set, move or clear (None) the deadline of a key."""
        if at is None:
            self._due.pop(key, None)
        elif self._due.get(key) != at:
            self._due[key] = at
            self._order += 1
            heapq.heappush(self._heap, (at, self._order, key))

    def earliest(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[Key]:
        """Remove and return every key whose deadline has come, earliest first."""
        due: list[Key] = []
        while (at := self.earliest()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            due.append(key)
        return due
