"""The signed roster, handed out over the broker: who joins need not be sent a file.

`veilsum host` publishes it every second under a login of its own; who waits for it listens under its own login. The
broker is not trusted with it: what arrives counts as a file that came by post would, by the organiser's signature and
the pin. A broker that holds it back, or hands out an old one, can only keep somebody waiting.

Implements specs/invitations.md, section 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from veilsum.roles.broker.connect import broker_address
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.transport.mqtt.link import MqttLink
from veilsum.transport.mqtt.topics import NOTICES, Topics

EVERY_S = 1.0
CONNECT_WITHIN_S = 600.0

T = TypeVar("T")


async def publish_notices(loaded: LoadedFederation, login: Path, content: Callable[[], bytes]) -> None:
    """Hand out what `content` gives, again and again, until this is cancelled."""
    async with _link(loaded, NOTICES, login, CONNECT_WITHIN_S) as link:
        while True:
            await link.publish_notice(content())
            await asyncio.sleep(EVERY_S)


async def first_notice(
    loaded: LoadedFederation, name: str, login: Path, accept: Callable[[bytes], T | None], within_s: float
) -> T | None:
    """What `accept` makes of the first notice that it takes, None when time has passed.

    `BrokerUnreachable` if no broker was there in all that time.
    """
    end = asyncio.get_running_loop().time() + within_s
    async with _link(loaded, name, login, within_s) as link:
        try:
            async with asyncio.timeout_at(end):
                async for notice in link.notices():
                    if (found := accept(notice)) is not None:
                        return found
        except TimeoutError:
            pass
    return None


def _link(loaded: LoadedFederation, name: str, login: Path, within_s: float) -> MqttLink:
    broker, topics = broker_address(loaded, name, login), Topics(loaded.federation_id)
    return MqttLink(broker, topics, name, within_s, watches_only=True)
