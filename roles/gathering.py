"""The server waits for parties before it opens a session, so that the order of starting does not matter.

A machine that has started counts on deadlines: with too few parties at the opening deadline the run is over. People
start processes on several computers over minutes, and after a power cut everything comes back in any order. So the
server's process starts its machine when enough parties tell that they are there for a session to open, or when
its patience is at an end and the machine may say who is missing.

Parties are heard by their signed statuses and not by their knocks: a party that waits in the middle of a round for
a server that was restarted does not knock for a long time. A status that was recorded and is played back can make
the server start too early, which is what it would do without waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from veilsum.protocol.errors import ProtocolError
from veilsum.protocol.roster import Roster
from veilsum.roles.journal import Journal
from veilsum.roles.status import open_status
from veilsum.transport.base import Datagram


async def gather(
    statuses: AsyncIterator[Datagram],
    roster: Roster,
    federation_id: str,
    at_least: int,
    within_s: float,
    journal: Journal,
) -> frozenset[str]:
    """Who is there, once there are enough of them or the time is up."""
    present: set[str] = set()
    try:
        async with asyncio.timeout(within_s):
            while len(present) < at_least:
                datagram = await anext(statuses)
                try:
                    party = open_status(roster, federation_id, bytes(datagram.data)).party
                except ProtocolError:
                    continue
                if party in roster.participants and party not in present:
                    present.add(party)
                    journal.say("arrived", who=party, present=len(present), needed=at_least)
    except TimeoutError:
        journal.say("warning", text=f"only {len(present)} of at least {at_least} parties came")
    return frozenset(present)
