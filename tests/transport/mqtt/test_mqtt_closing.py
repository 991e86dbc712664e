"""Closing takes no longer than it may: with a frozen broker, and with a task that refuses to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

import pytest

from tests.support.brokers.broker import BrokerProcess, mosquitto, needs_mosquitto
from tests.support.tables.sealed_party import mqtt_party
from veilsum.transport.closing import end_task
from veilsum.transport.errors import TransportError
from veilsum.transport.limits import MIB
from veilsum.transport.mqtt.client import BrokerClient
from veilsum.transport.mqtt.link import DISCONNECT_S, FAREWELL_S
from veilsum.transport.reliable import END_S
from veilsum.transport.reliable import FAREWELL_S as LAST_ACKS_S

PATIENCE_S = 30.0
CLOSE_WITHIN_S = LAST_ACKS_S + END_S + FAREWELL_S + DISCONNECT_S
SLACK_S = 2.0


class Stubborn:
    """Work that hears every cancellation and goes on until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.cancellations = 0

    async def work(self) -> None:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancellations += 1


def test_the_parts_of_closing_add_up_to_eight_seconds() -> None:
    assert CLOSE_WITHIN_S == 8.0


def test_a_task_that_refuses_to_end_is_told_twice_and_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        stubborn = Stubborn()
        task = asyncio.create_task(stubborn.work(), name="stubborn work")
        await asyncio.sleep(0)
        started = asyncio.get_running_loop().time()
        assert not await end_task(task, 0.2)
        assert asyncio.get_running_loop().time() - started < 0.2 + SLACK_S
        assert stubborn.cancellations == 2
        stubborn.released.set()
        await task

    with caplog.at_level(logging.WARNING, "veilsum"):
        asyncio.run(scenario())
    assert "stubborn work did not end within 0.2 s" in caplog.text


def test_a_task_that_swallows_one_cancellation_ends_with_the_second() -> None:
    async def swallow_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE_S)
        await asyncio.sleep(PATIENCE_S)

    async def scenario() -> None:
        task = asyncio.create_task(swallow_one())
        await asyncio.sleep(0)
        assert await end_task(task, 0.2)
        assert task.cancelled()

    asyncio.run(scenario())


@needs_mosquitto
def test_closing_is_over_in_time_although_the_connection_refuses_to_end(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    disconnect = BrokerClient.__aexit__

    async def scenario() -> None:
        stubborn, loop = Stubborn(), asyncio.get_running_loop()

        async def refuse(client: BrokerClient, *exc_info: object) -> None:
            await stubborn.work()
            await disconnect(client, None, None, None)

        monkeypatch.setattr(BrokerClient, "__aexit__", refuse)
        alice = mqtt_party(broker.address("5"), "alice")
        await alice.__aenter__()
        started = loop.time()
        await alice.__aexit__(None, None, None)
        assert loop.time() - started < CLOSE_WITHIN_S + SLACK_S
        assert stubborn.cancellations > 0
        stubborn.released.set()
        await asyncio.sleep(0.1)

    asyncio.run(scenario())


@needs_mosquitto
def test_closing_is_over_in_time_although_the_broker_is_frozen_and_its_socket_is_full(tmp_path: Path) -> None:
    process = mosquitto(tmp_path, ())
    process.start()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        alice = mqtt_party(process.address("5"), "alice")
        async with mqtt_party(process.address("5"), "bob") as bob:
            await alice.__aenter__()
            await alice.send("bob", [b"hello"], PATIENCE_S)
            await bob.receive()
            process.freeze()
            sending = asyncio.create_task(alice.send("bob", [os.urandom(30 * MIB)], PATIENCE_S))
            await asyncio.sleep(0.5)
            started = loop.time()
            await alice.__aexit__(None, None, None)
            assert loop.time() - started < CLOSE_WITHIN_S + SLACK_S
            with pytest.raises(TransportError):
                await sending
            process.thaw()

    try:
        asyncio.run(scenario())
    finally:
        process.stop()
