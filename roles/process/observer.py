"""Whoever hears what a driver does. It must return at once and raise nothing: the protocol does not wait for it."""

from __future__ import annotations

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event
from veilsum.protocol.wire.messages import Message
from veilsum.roles.learning.contract import LocalUpdate


class RunObserver:
    """Hears nothing; override what you want to hear."""

    def sent(self, receiver: PartyId, message: Message, size: int) -> None:
        """A message is on its way, as so many bytes."""

    def received(self, sender: PartyId, message: Message, size: int) -> None:
        """A message came whose signature and addressee are right, whatever the machine makes of it."""

    def trained(self, round_number: int, update: LocalUpdate) -> None:
        """The party has trained."""

    def noted(self, event: Event) -> None:
        """The machine stated a fact; what must be durable is on disk."""
