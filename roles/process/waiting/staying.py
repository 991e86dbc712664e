"""A party that has all rounds stays for a while only: for a server that comes back and asks for what it holds.

A server that lost its folder is given the state by the parties, and a party that was away is brought along by a session
with the others (specs/chain.md, section 9). So whoever finished takes part again when a server is there; where none
comes, it has nothing to wait for.
"""

from __future__ import annotations

import asyncio

from veilsum.protocol.machines.phases import ParticipantPhase
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.pump import Ended


async def take_part(driver: Driver, rounds: int, stay_s: float | None) -> Ended:
    """Until the end of the run; who has all rounds already leaves if no server is heard for so long."""
    if stay_s is None or driver.state.rounds_done < rounds or driver.state.model is None:
        return await driver.run()
    driver.log.say(
        "staying", text=f"all {rounds} rounds are here; a server may still ask, up to {stay_s:g} s"
    )
    running = asyncio.create_task(driver.run())
    try:
        await asyncio.wait({running}, timeout=stay_s)
        if running.done() or driver.machine.phase is not ParticipantPhase.KNOCKING:
            return await running
    finally:
        running.cancel()
        await asyncio.wait({running})
    ended = driver.finish(rounds)
    assert ended is not None
    return ended
