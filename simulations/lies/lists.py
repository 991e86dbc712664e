"""Servers that would have two sums at one position, over lists that differ by a party: their difference is its update.

A list opens with t signatures, and no two lists of an attempt get as many. What a party signed in one attempt it states
before it uploads in the next.

Implements specs/lies.md, section 3.
"""

from __future__ import annotations

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof, SurvivorSignature
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.lies.lie import Liars, Lie


class _ListLie(Lie):
    """A server that proposes a list without one party, signed as its own."""

    about_lists = True

    def _without(self, left_out: PartyId, proposed: SurvivorList) -> SurvivorList:
        survivors = tuple(name for name in proposed.survivors if name != left_out)
        dropped = tuple(sorted((*proposed.dropped, left_out)))
        changed = SurvivorList(proposed.stamp, survivors, dropped, len(survivors))
        return changed.vouched(self.liars.server)


class SplitSurvivors(_ListLie):
    name = "server:split-survivors"
    does = "shows one half of the parties a list with everyone, and the other half a list without one of them"
    noticed_as = "SURVIVOR_LIST at all: neither list has enough signatures; nothing is committed"

    def __init__(self, liars: Liars) -> None:
        super().__init__(liars)
        self._halves: tuple[frozenset[PartyId], ...] = ()
        self._signatures: dict[PartyId, SurvivorSignature] = {}
        self._unproved: set[PartyId] = set()

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if not isinstance(message, SurvivorList) or self.liars.victim not in message.survivors:
            return message
        if not self._unproved:
            self._signatures = {}
        first = frozenset(message.survivors[: len(message.survivors) // 2])
        self._halves = first, frozenset(message.survivors) - first
        self._unproved.add(receiver)
        return self._without(self.liars.victim, message) if receiver in first else message

    def hear(self, sender: PartyId, message: Message) -> None:
        if isinstance(message, SurvivorSignature):
            self._signatures[sender] = message

    def beforehand(self, receiver: PartyId) -> Message | None:
        """Once the wait for signatures is over: those of its half, as if they were enough."""
        if receiver not in self._unproved or not self._signatures:
            return None
        self._unproved.remove(receiver)
        half = next(one for one in self._halves if receiver in one)
        signed = {name: one for name, one in self._signatures.items() if name in half}
        stamp = next(iter(self._signatures.values())).stamp
        return SurvivorProof(stamp, {name: one.signature for name, one in signed.items()})


class TwoLists(_ListLie):
    name = "server:two-lists"
    does = (
        "opens a sum and keeps it, calls the attempt failed, and asks for a sum without one party in the next"
    )
    noticed_as = "DIFFERENCING at all who are asked; nothing is committed"

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        match message:
            case SumOpened() | Aggregate() if message.stamp.attempt == 0:
                return None
            case SurvivorList() if message.stamp.attempt > 0 and self.liars.victim in message.survivors:
                return None if receiver == self.liars.victim else self._without(self.liars.victim, message)
            case _:
                return message
