"""A party that has all rounds stays for a while only: for a server that comes back and asks for what it holds.

A server that lost its folder is given the state by the parties, and a party that was away is brought along by a session
with the others (specs/chain.md, section 9). So whoever finished takes part again when a server is there; where none
comes, it has nothing to wait for.

A server answers nobody before enough parties are there (quorum.py), and people start them minutes apart. Each of them
would leave before the next one came, so what the server tells of itself meanwhile counts as its being there. What is
played back from a recording can make a party stay too long, and no longer than its patience.

Implements specs/guide.md, section 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.phases import ParticipantPhase
from veilsum.protocol.machines.rules import MachineRules
from veilsum.roles.monitor.status import open_status
from veilsum.roles.process.clock import monotonic
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.pump import Ended
from veilsum.transport.base import Datagram
from veilsum.transport.foreign import ForeignReader


class TellsStatuses(Protocol):
    """What a server is heard by before a session; every `RoleTransport` is one."""

    def statuses(self) -> AsyncIterator[Datagram]: ...


class Stay:
    """Until when a party stays: so long after the server was last heard, and in all no longer than `at_most_s`."""

    def __init__(
        self,
        roster: Roster,
        federation_id: str,
        stay_s: float,
        at_most_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._roster = roster
        self._federation = federation_id
        self._stay_s = stay_s
        self._clock = clock
        self._foreign = ForeignReader()
        self._newest = (-1, -1)
        self._last = clock() + max(stay_s, at_most_s)
        self._until = clock() + stay_s

    @property
    def left_s(self) -> float:
        return self._until - self._clock()

    async def listen(self, transport: TellsStatuses) -> None:
        async for datagram in transport.statuses():
            self.hear(datagram)

    def hear(self, datagram: Datagram) -> None:
        """A status; one of the server that is newer than those before prolongs the stay."""
        read = partial(open_status, self._roster, self._federation, bytes(datagram.data))
        status = self._foreign.read("status", datagram.sender_hint, read)
        if status is not None and status.party == SERVER and status.order > self._newest:
            self._newest = status.order
            self._until = min(self._clock() + self._stay_s, self._last)


async def take_part(
    driver: Driver, transport: TellsStatuses, rules: MachineRules, federation_id: str, stay_s: float | None
) -> Ended:
    """Until the end of the run; who has all rounds already leaves if no server is heard for so long."""
    rounds, patience_s = rules.rounds, rules.timing.patience_s
    if stay_s is None or driver.state.rounds_done < rounds or driver.state.model is None:
        return await driver.run()
    driver.log.say(
        "staying", text=f"all {rounds} rounds are here; a server may still ask, up to {stay_s:g} s"
    )
    stay = Stay(rules.roster, federation_id, stay_s, patience_s - stay_s, monotonic)
    running = asyncio.create_task(driver.run())
    listening = asyncio.create_task(stay.listen(transport))
    try:
        while True:
            await asyncio.wait({running}, timeout=max(0.0, stay.left_s))
            if running.done() or driver.machine.phase is not ParticipantPhase.KNOCKING:
                return await running
            if stay.left_s <= 0:
                break
    finally:
        for task in (running, listening):
            task.cancel()
        await asyncio.gather(running, listening, return_exceptions=True)
    ended = driver.finish(rounds)
    assert ended is not None
    return ended
