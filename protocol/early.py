"""Messages that overtook the one that makes them understandable; a bounded number of them waits."""

from __future__ import annotations

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.messages import Message


class EarlyMessages:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: list[tuple[PartyId, Message]] = []

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self._capacity

    def hold(self, sender: PartyId, message: Message) -> None:
        self._waiting.append((sender, message))

    def take(self) -> list[tuple[PartyId, Message]]:
        """All that waited, in order; what is still early will be held again."""
        waiting, self._waiting = self._waiting, []
        return waiting
