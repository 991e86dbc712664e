"""Behind a load balancer whose broker restarts, connections break in every way: only what stays wrong is final."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.brokers.balancer import Balancer
from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.brokers.certificates import make_certificates
from tests.support.refusals import refusal
from tests.support.tables.sealed_party import mqtt_party
from veilsum.transport.errors import BrokerRefused, BrokerUnreachable
from veilsum.transport.mqtt.broker_address import Tls

pytestmark = needs_mosquitto
PATIENCE_S = 30.0
OUTAGE_S = 2.0
IN_THE_MIDDLE = 40
"""So many bytes of a client's first words are less than a TLS hello."""


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("first_bytes", [0, IN_THE_MIDDLE])
def test_parties_that_start_or_run_while_the_broker_restarts_come_through(
    guarded: tuple[BrokerProcess, Path], first_bytes: int, reset: bool
) -> None:
    broker, folder = guarded
    tls = Tls(ca=folder / "ca.pem")

    async def scenario() -> None:
        balancer = Balancer(broker.port, first_bytes=first_bytes, reset=reset)
        async with balancer.serving(), mqtt_party(balancer.address("bob", "secret b", tls), "bob") as bob:
            balancer.away = True
            balancer.cut()
            alice = mqtt_party(balancer.address("alice", "secret a", tls), "alice")
            starting = asyncio.create_task(alice.__aenter__())
            await asyncio.sleep(OUTAGE_S)
            assert not starting.done(), "alice waits as long as her patience"
            assert balancer.accepted > 3, "both tried again and again"
            balancer.away = False
            await starting
            try:
                sending = asyncio.create_task(alice.send("bob", [b"through"], PATIENCE_S))
                assert bytes((await bob.receive()).payload) == b"through"
                await sending
            finally:
                await alice.__aexit__()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_a_handshake_that_breaks_for_longer_than_the_patience_is_unreachable_and_not_refused(
    guarded: tuple[BrokerProcess, Path],
) -> None:
    broker, folder = guarded

    async def scenario() -> None:
        async with Balancer(broker.port, away=True, first_bytes=IN_THE_MIDDLE).serving() as balancer:
            address = balancer.address("alice", "secret a", Tls(ca=folder / "ca.pem"))
            with refusal(BrokerUnreachable, "connection", f"localhost:{balancer.port}"):
                async with mqtt_party(address, "alice", connect_within_s=1.0):
                    raise AssertionError("nobody let us in")
            assert balancer.accepted > 1

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


@pytest.mark.parametrize(
    ("password", "trusted", "word"),
    [("guess", True, "authorized"), ("secret a", False, "certificate")],
)
def test_a_wrong_login_and_a_wrong_certificate_are_final_behind_it_too(
    guarded: tuple[BrokerProcess, Path], tmp_path: Path, password: str, trusted: bool, word: str
) -> None:
    broker, folder = guarded
    make_certificates(tmp_path)
    tls = Tls(ca=(folder if trusted else tmp_path) / "ca.pem")

    async def scenario() -> None:
        async with Balancer(broker.port).serving() as balancer:
            with refusal(BrokerRefused, "refused", word):
                async with mqtt_party(
                    balancer.address("alice", password, tls), "alice", connect_within_s=PATIENCE_S
                ):
                    raise AssertionError("the broker let us in")
            assert balancer.accepted == 1

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
