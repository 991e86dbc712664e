"""The server waits for parties before it opens a session, so that the order of starting does not matter.

A machine that has started counts on deadlines: with too few parties at the opening deadline the run is over. People
start processes on several computers over minutes, and after a power cut everything comes back in any order. So the
server's process starts its machine when enough parties tell that they are there for a session to open, or when
its patience is at an end and the machine may say who is missing.

Parties are heard by their signed statuses and not by their knocks: a party that waits in the middle of a round for
a server that was restarted does not knock for a long time. A status that was recorded and is played back can make
the server start too early, which is what it would do without waiting.

Implements specs/guide.md, section 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.machines.on_chain import chain_terms
from veilsum.protocol.machines.rules import MachineRules
from veilsum.protocol.machines.scheme import Scheme
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.status import open_status
from veilsum.transport.base import Datagram, Received
from veilsum.transport.foreign import ForeignReader


class Surroundings(Protocol):
    """What is heard of the others before a session; every `RoleTransport` is one."""

    def statuses(self) -> AsyncIterator[Datagram]: ...
    async def receive(self) -> Received: ...


@dataclass(frozen=True)
class Need:
    """What a session cannot open without: so many parties, and so many of those who vote."""

    parties: int
    votes: int = 0
    voters: frozenset[str] = frozenset()

    @classmethod
    def of(cls, scheme: Scheme, rules: MachineRules, record: ChainRecord | None) -> Need:
        """As far as the server knows who votes: from its own record of the chain."""
        parameters = rules.parameters
        if record is None or not scheme.has_chain:
            return cls(parameters.min_parties)
        voters = chain_terms(scheme, rules).electorate(record.position, record.certificate)
        votes = parameters.threshold_of(len(voters)) if voters else 0
        return cls(max(parameters.min_parties, votes), votes, frozenset(voters))

    def is_met_by(self, present: Collection[str]) -> bool:
        return len(present) >= self.parties and len(self.voters.intersection(present)) >= self.votes

    def lacking(self, present: Collection[str]) -> str:
        """What is not met, in words."""
        if len(present) < self.parties:
            return f"only {len(present)} of at least {self.parties} parties came"
        voters = len(self.voters.intersection(present))
        return f"only {voters} of at least {self.votes} of those who vote came"


@dataclass
class Quorum:
    """Who of a roster has been heard."""

    roster: Roster
    federation_id: str
    need: Need
    log: RoleLog
    present: set[str] = field(default_factory=set)
    foreign: ForeignReader = field(default_factory=ForeignReader)

    async def wait(self, surroundings: Surroundings, within_s: float) -> None:
        """Return when enough parties are there or the time is up; raise what the transport raises."""
        self.log.say("waiting", needed=self.need.parties, at_most_s=within_s)
        listening = asyncio.create_task(self._listen(surroundings))
        discarding = asyncio.create_task(_discard_messages(surroundings))
        tasks = (listening, discarding)
        try:
            done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()
        if not done:
            self.log.say("warning", text=self.need.lacking(self.present))

    async def _listen(self, surroundings: Surroundings) -> None:
        async for datagram in surroundings.statuses():
            self._hear(datagram)
            if self.need.is_met_by(self.present):
                return

    def _hear(self, datagram: Datagram) -> None:
        read = partial(open_status, self.roster, self.federation_id, bytes(datagram.data))
        status = self.foreign.read("status", datagram.sender_hint, read)
        party = None if status is None else status.party
        if party in self.roster.participants and party not in self.present:
            self.present.add(party)
            self.log.say("arrived", who=party, present=len(self.present), needed=self.need.parties)


async def _discard_messages(surroundings: Surroundings) -> None:
    """Before there is a session no message means anything: the machine's first word is to invite everybody."""
    while True:
        await surroundings.receive()
