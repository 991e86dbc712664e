"""The server waits for its first parties, so that the order in which processes are started does not matter.

A machine that has started counts on deadlines: with too few parties at the opening deadline the run is over. People
start processes on several computers over minutes. So the server's process starts its machine when enough parties
have knocked for a session to open, or when its patience is at an end and the machine may say who is missing.
"""

from __future__ import annotations

import asyncio

from veilsum.protocol.errors import ProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.session import Knock
from veilsum.roles.journal import Journal
from veilsum.roles.post import PostOffice
from veilsum.transport.base import Transport


async def gather(
    transport: Transport, post: PostOffice, journal: Journal, at_least: int, within_s: float
) -> frozenset[PartyId]:
    """Who has knocked; nothing else that arrives before a session has a meaning."""
    present: set[PartyId] = set()
    try:
        async with asyncio.timeout(within_s):
            while len(present) < at_least:
                received = await transport.receive()
                try:
                    sender, message = post.open(received.payload)
                except ProtocolError as error:
                    journal.say("refused", sender=received.sender_hint, text=str(error))
                    continue
                if isinstance(message, Knock) and sender not in present:
                    present.add(sender)
                    journal.say("knocked", sender=sender, present=len(present), needed=at_least)
    except TimeoutError:
        journal.say("warning", text=f"only {len(present)} of at least {at_least} parties came")
    return frozenset(present)
