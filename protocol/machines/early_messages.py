"""Messages that overtook the one that makes them understandable.

A bounded number of each sender waits, so that no one can crowd out the others.
"""

from __future__ import annotations

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Message


class EarlyMessages:
    def __init__(self, capacity_per_sender: int) -> None:
        self._capacity = capacity_per_sender
        self._waiting: list[tuple[PartyId, Message]] = []

    def full_of(self, sender: PartyId) -> bool:
        return sum(waiting == sender for waiting, _ in self._waiting) >= self._capacity

    def hold(self, sender: PartyId, message: Message) -> None:
        self._waiting.append((sender, message))

    def take(self) -> list[tuple[PartyId, Message]]:
        """All that waited, in order; what is still early will be held again."""
        waiting, self._waiting = self._waiting, []
        return waiting
