"""Reliable sealed transfer over a broker against a bare publisher on the same broker.

Both ends of each transfer run in one process on one event loop: our transport, with framing and
the lines of real parties, against a bare aiomqtt QoS 1 publisher with chunks of 1 MiB and a subscriber that joins them,
which checks nothing. The clock starts when both ends are connected and stops when the receiver holds the
payload in one piece. The two take turns, and each turn of one is compared with the next turn of the other,
so that bursts of other work on the machine disturb both alike; the median of these ratios is the figure.

Implements specs/transport.md, section 10.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from typing import TypedDict

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.process.channels import IdentityLines
from veilsum.transport.base import ConnectionRequest
from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.limits import MIB
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.transport import MqttTransport
from veilsum.transport.mqtt.yardstick import raw_publish

CONTESTS = 11
PATIENCE_S = 300.0
CONNECT_WITHIN_S = 60.0


class MqttFigures(TypedDict):
    """What one run reports; rates in MiB per second of payload delivered."""

    size_mib: int
    contests: int
    goodput_mib_s: float
    raw_mib_s: float
    goodput_over_raw: float


async def _our_seconds(broker: BrokerAddress, payload: bytes) -> float:
    federation = os.urandom(16).hex()
    names = ("sender", "receiver")
    ends = {name: Identity(PartyId(name), Role.CLIENT, SigningKey.generate(os.urandom)) for name in names}
    roster = Roster(1, tuple(end.public for end in ends.values()))

    def transport(name: str) -> MqttTransport:
        request = ConnectionRequest(
            federation=federation,
            address=name,
            life=os.urandom(LIFE_BYTES),
            crypto=IdentityLines(ends[name], roster, federation, os.urandom),
            on_gone=lambda _: None,
            connect_within_s=CONNECT_WITHIN_S,
        )
        return MqttTransport(broker, request)

    loop = asyncio.get_running_loop()
    async with transport("sender") as sender, transport("receiver") as receiver:
        await sender.send("receiver", [b"they know each other before the clock starts"], PATIENCE_S)
        await receiver.receive()
        started = loop.time()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sender.send("receiver", [payload], PATIENCE_S))
            received = await receiver.receive()
            seconds = loop.time() - started
    if bytes(received.payload) != payload:
        raise AssertionError("the payload arrived changed")
    return seconds


async def _contest(broker: BrokerAddress, payload: bytes, contests: int) -> tuple[list[float], list[float]]:
    ours, raw = [], []
    for _ in range(contests):
        ours.append(await _our_seconds(broker, payload))
        raw.append(await raw_publish(broker, payload))
    return ours, raw


def run(size_mib: int, broker: tuple[str, int], contests: int = CONTESTS) -> MqttFigures:
    """Send `size_mib` MiB through the broker at (host, port), in turn with ours and with the bare publisher."""
    payload = os.urandom(size_mib * MIB)
    ours, raw = asyncio.run(_contest(BrokerAddress(*broker), payload, contests))
    ratios = [raw_s / our_s for our_s, raw_s in zip(ours, raw, strict=True)]
    return MqttFigures(
        size_mib=size_mib,
        contests=contests,
        goodput_mib_s=size_mib / statistics.median(ours),
        raw_mib_s=size_mib / statistics.median(raw),
        goodput_over_raw=statistics.median(ratios),
    )
