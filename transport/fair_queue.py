"""A queue in which senders do not starve each other: each has places of its own, and they are served in turn.

One queue for all is filled by whoever sends most, and everybody else is turned away at its door. Here a sender that
floods displaces what it sent itself, and then waits as long as the others do. Who the sender is says whoever fills the
queue; behind a broker it is a hint, as good as the broker's access list.

Implements specs/transport.md, section 8.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import ClassVar, TypeVar

T = TypeVar("T")


class FairQueue(asyncio.Queue[T], ABC):
    """At most `maxsize` items wait, and of one sender no more than its places and bytes."""

    places_of_one: ClassVar[int]
    bytes_of_one: ClassVar[int]

    @abstractmethod
    def sender_of(self, item: T) -> str:
        """Whose place it takes."""

    @abstractmethod
    def size_of(self, item: T) -> int:
        """How many bytes it holds."""

    def offer(self, item: T) -> list[T]:
        """Take in an item; returns what gives way to it: of its own sender, or of whoever has most waiting."""
        sender = self.sender_of(item)
        displaced = []
        while self._must_give_way(sender, self.size_of(item)):
            displaced.append(self._take(sender))
        if self.full():
            displaced.append(self._take(max(self._rows, key=lambda name: len(self._rows[name]))))
        self.put_nowait(item)
        return displaced

    def qsize(self) -> int:
        return self._waiting

    def empty(self) -> bool:
        return not self._waiting

    # What asyncio's queue is made of.

    def _init(self, maxsize: int) -> None:
        self._rows: dict[str, deque[T]] = {}
        self._bytes: dict[str, int] = {}
        self._waiting = 0

    def _put(self, item: T) -> None:
        sender = self.sender_of(item)
        self._rows.setdefault(sender, deque()).append(item)
        self._bytes[sender] = self._bytes.get(sender, 0) + self.size_of(item)
        self._waiting += 1

    def _get(self) -> T:
        sender = next(iter(self._rows))
        item = self._take(sender)
        if sender in self._rows:
            self._rows[sender] = self._rows.pop(sender)
        return item

    def _must_give_way(self, sender: str, size: int) -> bool:
        row = self._rows.get(sender, ())
        return bool(row) and (
            len(row) >= self.places_of_one or self._bytes[sender] + size > self.bytes_of_one
        )

    def _take(self, sender: str) -> T:
        """The oldest item of a sender."""
        item = self._rows[sender].popleft()
        self._bytes[sender] -= self.size_of(item)
        self._waiting -= 1
        if not self._rows[sender]:
            del self._rows[sender], self._bytes[sender]
        return item
