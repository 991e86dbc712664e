"""What a link to a broker bounds: packets that it publishes, lines that it logs, and what waits of one sender."""

from __future__ import annotations

import asyncio

import pytest

from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.client import LARGEST_ACCEPTED
from veilsum.transport.mqtt.link import MqttLink
from veilsum.transport.mqtt.topics import Topics


class Recorder:
    """A connection that takes note of what is published."""

    def __init__(self, largest_packet: int | None) -> None:
        self.largest_packet = largest_packet
        self.sizes: list[int] = []

    async def publish(self, topic: str, payload: bytes, qos: int, timeout: float) -> None:
        self.sizes.append(len(payload))


@pytest.mark.parametrize("largest", [None, 8192, 100_000, 1 << 28])
def test_nothing_larger_than_the_largest_packet_is_published(largest: int | None) -> None:
    """A broker throws off who publishes more than it takes: that is dropped, counted, and the link goes on."""
    most = min(largest or LARGEST_ACCEPTED, LARGEST_ACCEPTED)

    async def scenario() -> None:
        link = MqttLink(BrokerAddress("localhost"), Topics("fed"), "a")
        recorder = Recorder(largest)
        link._client = recorder  # type: ignore[assignment]  # a stand-in for the connection
        for size in (most, most + 1, 4 * most, most - 200, 10):
            await link.send("b", bytes(size))
        await asyncio.gather(*link._publishing)
        assert recorder.sizes == [most - 200, 10]
        assert link.foreign.counts == {"publication": 3}

    asyncio.run(scenario())
