"""Connections that break at any moment, or never come about, leave nothing behind: no exception, and no connection."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.balancer import Balancer
from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.refusals import refusal
from tests.support.tables.sealed_party import mqtt_party
from veilsum.transport.errors import BrokerUnreachable
from veilsum.transport.mqtt import link
from veilsum.transport.mqtt.broker_address import Tls

pytestmark = needs_mosquitto
PATIENCE_S = 40.0
LENGTHS = [0, 1, 40, 300, 500, 550, 600, 650, 700, 800, 900, 1000, 1200, 1500, 2000, 3000]
"""From the first byte through the TLS hello, its second flight, CONNECT and SUBSCRIBE into data."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(link, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(link, "TIMEOUT_S", 0.3)


def hear_the_loop() -> list[dict[str, Any]]:
    """What the event loop finds in need of telling, from now on."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    return heard


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_may_break_after_any_byte_and_the_next_one_is_made_in_silence(
    guarded: tuple[BrokerProcess, Path], caplog: pytest.LogCaptureFixture, reset: bool
) -> None:
    """Nobody is refused, the loop hears of no exception, the library logs nothing, and the message arrives."""
    broker, folder = guarded
    tls = Tls(ca=folder / "ca.pem")

    async def scenario() -> list[dict[str, Any]]:
        heard = hear_the_loop()
        async with (
            Balancer(broker.port, reset=reset, lengths=list(LENGTHS)).serving() as balancer,
            mqtt_party(broker.address("5", "bob", "secret b", tls), "bob") as bob,
            mqtt_party(
                balancer.address("alice", "secret a", tls), "alice", connect_within_s=PATIENCE_S
            ) as alice,
        ):
            sending = asyncio.create_task(alice.send("bob", [b"through" * 1000], PATIENCE_S))
            assert bytes((await bob.receive()).payload) == b"through" * 1000
            await sending
            assert not balancer.lengths and balancer.accepted > len(LENGTHS)
        gc.collect()
        await asyncio.sleep(0)
        return heard

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S)) == []
    told = [record.getMessage() for record in caplog.records]
    assert all("in a row" in text for text in told), told


@pytest.mark.usefixtures("impatient")
def test_an_attempt_that_was_given_up_is_closed_so_that_a_broker_that_wakes_up_does_not_let_it_in(
    guarded: tuple[BrokerProcess, Path],
) -> None:
    """While nothing is answered they do not pile up, and none is left afterwards; the loop hears of no exception."""
    broker, _ = guarded

    async def scenario() -> list[dict[str, Any]]:
        heard = hear_the_loop()
        async with Balancer(broker.port, stuck=True).serving() as balancer:
            with refusal(BrokerUnreachable, "connection", f"localhost:{balancer.port}"):
                async with mqtt_party(balancer.address("alice", "secret a"), "alice", connect_within_s=2.0):
                    raise AssertionError("nobody let us in")
            assert balancer.accepted > 3
            assert balancer.most_open <= 2, "the one before may not be gone yet when the next one comes"
            while balancer.open_connections:
                await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0)
        return heard

    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S)) == []


def test_a_connection_that_is_reset_before_its_handshake_leaves_no_socket_open() -> None:
    """As by a load balancer whose broker is away; Python gives up on such a socket without closing it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        plain = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        select.select([plain], [], [], 5.0)
        descriptor = plain.fileno()
        with pytest.raises(ConnectionResetError):
            Tls().context().wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
