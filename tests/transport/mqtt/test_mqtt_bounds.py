"""What a link to a broker bounds: packets that it publishes, lines that it logs, and what waits of one sender."""

from __future__ import annotations

import asyncio
import logging

import pytest
from paho.mqtt.client import MQTTMessage

from veilsum.transport.foreign import EVERY_S, ForeignReader, RateLimit
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.client import (
    LARGEST_ACCEPTED,
    MOST_OF_ONE,
    MOST_QUEUED,
    V5,
    BrokerClient,
    library_logger,
    new_client,
)
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


def unconnected(foreign: ForeignReader, logger: logging.Logger | None = None) -> BrokerClient:
    return new_client(
        BrokerAddress("localhost"),
        V5,
        "me",
        "gone",
        tls=None,
        answer_within_s=1.0,
        logger=logger or logging.getLogger("test"),
        foreign=foreign,
    )


def arrives(client: BrokerClient, topic: str, payload: bytes = b"x") -> None:
    message = MQTTMessage(topic=topic.encode())
    message.payload = payload
    client._on_message(None, None, message)


@pytest.mark.parametrize("kind", ["gone", "status", "datagrams"])
def test_a_flood_in_one_name_costs_nobody_else_a_place_in_the_queue(kind: str) -> None:
    """Wills, statuses or datagrams of mallory, ten queues full: what the others send meanwhile is there, in turn."""
    topics = Topics("fed")
    floods = {
        "gone": topics.gone("mallory"),
        "status": topics.status("mallory"),
        "datagrams": topics.datagrams("me", "mallory"),
    }
    honest = [topics.datagrams("me", "alice"), topics.gone("bob"), topics.datagrams("me", "server")]

    async def scenario() -> None:
        reader = ForeignReader(lambda defect: None)
        client = unconnected(reader)
        for _ in range(10 * MOST_QUEUED):
            arrives(client, floods[kind])
        for topic in honest:
            arrives(client, topic)
        assert len(client.messages) == MOST_OF_ONE + len(honest)
        assert reader.counts["packet"] == 10 * MOST_QUEUED - MOST_OF_ONE
        first = [(await anext(aiter(client.messages))).topic.value for _ in range(1 + len(honest))]
        assert first == [floods[kind], *honest]

    asyncio.run(scenario())


@pytest.mark.parametrize("callback", ["_on_subscribe", "_on_unsubscribe"])
def test_answers_that_nobody_asked_for_write_few_lines(
    callback: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker can send any number of them; each once wrote a line with a traceback."""
    now = 0.0

    async def scenario() -> None:
        logger = library_logger("test.client", RateLimit(lambda: now))
        client = unconnected(ForeignReader(), logger)
        for number in range(500):
            getattr(client, callback)(None, None, number, [], None)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
        now = EVERY_S
        lines = len(caplog.records)
        logging.getLogger("test.client").error("another")
    assert lines == 1
    assert "Traceback" not in caplog.text
    assert "499 more" in caplog.records[-1].getMessage()


def test_the_link_gives_the_library_a_logger_whose_lines_are_bounded() -> None:
    async def scenario() -> None:
        link = MqttLink(BrokerAddress("localhost"), Topics("fed"), "a")
        assert link._new_client()._logger.filters

    asyncio.run(scenario())
