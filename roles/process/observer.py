"""Whoever hears what the parties of a run do: one party of a process, or all of a simulation.

It must return at once and raise nothing but what is to end the run: the protocol does not wait for it. `now` is the
date in a process, and the virtual time in a simulation and at a table.
"""

from __future__ import annotations

from collections.abc import Iterable

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event
from veilsum.protocol.wire.messages import Message
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.process.machines import Machine


class RunObserver:
    """Hears nothing; override what you want to hear."""

    @property
    def seen_enough(self) -> bool:
        """Whether a simulation may end before its parties do."""
        return False

    def began(self, now: float, party: PartyId, machine: Machine) -> None:
        """A party starts, or starts again, with this machine."""

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        """A message of the party is on its way, as so many bytes."""

    def received(self, now: float, party: PartyId, sender: PartyId, message: Message, size: int) -> None:
        """A message came whose signature and addressee are right, whatever the machine makes of it."""

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        """The party has trained."""

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        """The party's machine stated a fact; what must be durable is on disk."""


class Observers(RunObserver):
    """Several observers, told one after the other; the run may end as soon as one of them has seen enough."""

    def __init__(self, observers: Iterable[RunObserver]) -> None:
        self._all = tuple(observers)

    @property
    def seen_enough(self) -> bool:
        return any(one.seen_enough for one in self._all)

    def began(self, now: float, party: PartyId, machine: Machine) -> None:
        for one in self._all:
            one.began(now, party, machine)

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        for one in self._all:
            one.sent(now, party, receiver, message, size)

    def received(self, now: float, party: PartyId, sender: PartyId, message: Message, size: int) -> None:
        for one in self._all:
            one.received(now, party, sender, message, size)

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        for one in self._all:
            one.trained(now, party, round_number, update)

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        for one in self._all:
            one.noted(now, party, event)
