"""Brokers that die, lose, refuse and limit: the transfer resumes, or ends with a typed reason."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tests.support.brokers.broker import BrokerProcess, mosquitto, needs_mosquitto
from tests.support.refusals import refusal
from tests.support.tables.sealed_party import mqtt_party
from veilsum.transport.errors import BadSetting, BrokerRefused, Unreachable
from veilsum.transport.limits import MIB, Limits
from veilsum.transport.mqtt.broker_address import MqttVersion, Tls
from veilsum.transport.mqtt.client import BrokerClient

pytestmark = needs_mosquitto
PATIENCE_S = 60.0
StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBroker]:
    started: list[BrokerProcess] = []

    def start_broker(*settings: str) -> BrokerProcess:
        process = mosquitto(tmp_path / str(len(started)), settings)
        process.start()
        started.append(process)
        return process

    yield start_broker
    for process in started:
        process.stop()


@pytest.mark.parametrize("persistence", ["persistence false", "persistence true"])
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_transfer_resumes_after_the_broker_was_killed(
    start: StartBroker, tmp_path: Path, persistence: str, version: MqttVersion
) -> None:
    broker = start(persistence, f"persistence_location {tmp_path}/")
    message = os.urandom(12 * MIB)

    async def scenario() -> None:
        address = broker.address(version)
        limits = Limits(window_bytes=2 * MIB)
        async with mqtt_party(address, "alice", limits=limits) as alice, mqtt_party(address, "bob") as bob:
            await alice.send("bob", [b"hello"], PATIENCE_S)
            await bob.receive()
            sending = asyncio.create_task(alice.send("bob", [message], PATIENCE_S))
            while alice._endpoint.counters.sent < 8:
                await asyncio.sleep(0)
            broker.kill()
            await asyncio.sleep(0.3)
            broker.start()
            received = await asyncio.wait_for(bob.receive(), PATIENCE_S)
            assert bytes(received.payload) == message
            await sending
            assert alice._endpoint.repeated_chunks("bob") < 12, "only missing chunks travelled again"

    asyncio.run(scenario())


def test_deadlines_hold_while_the_broker_is_dead_or_frozen(start: StartBroker) -> None:
    broker = start()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with mqtt_party(broker.address(), "alice") as alice, mqtt_party(broker.address(), "bob") as bob:
            await alice.send("bob", [b"hello"], PATIENCE_S)
            await bob.receive()
            broker.freeze()
            asked_at = loop.time()
            with pytest.raises(Unreachable, match="bob"):
                await alice.send("bob", [os.urandom(30 * MIB)], deadline_s=1.0)
            assert loop.time() - asked_at < 8.0, "well before any timeout of the connection"
            broker.thaw()
            await alice.send("bob", [b"again"], PATIENCE_S)
            assert bytes((await bob.receive()).payload) == b"again"

    asyncio.run(scenario())


def test_a_slow_subscriber_behind_a_short_queue_gets_everything(start: StartBroker) -> None:
    """The broker drops what it cannot queue while the receiver sleeps, at every QoS; framing repairs it."""
    broker = start("max_queued_messages 20")
    count = 200
    got: list[int] = []

    def sleepy_receiver() -> None:
        async def receive() -> None:
            async with mqtt_party(broker.address(), "bob") as bob:
                for number in range(count):
                    if number == 10:
                        time.sleep(1.0)
                    got.append(int.from_bytes((await bob.receive()).payload[:4], "big"))

        asyncio.run(receive())

    async def send() -> None:
        async with mqtt_party(broker.address(), "alice") as alice, asyncio.TaskGroup() as tasks:
            for number in range(count):
                payload = [number.to_bytes(4, "big"), bytes(60_000)]
                tasks.create_task(alice.send("bob", payload, PATIENCE_S))

    thread = threading.Thread(target=sleepy_receiver)
    thread.start()
    asyncio.run(send())
    thread.join(PATIENCE_S)
    assert got == list(range(count))


def test_a_packet_limit_that_the_broker_states_is_respected(start: StartBroker) -> None:
    broker = start("max_packet_size 100000")
    message = os.urandom(MIB)

    async def scenario() -> None:
        address = broker.address("5")
        async with mqtt_party(address, "alice") as alice, mqtt_party(address, "bob") as bob:
            sending = asyncio.create_task(alice.send("bob", [message], PATIENCE_S))
            assert bytes((await asyncio.wait_for(bob.receive(), PATIENCE_S)).payload) == message
            await sending

    asyncio.run(scenario())


def test_a_packet_limit_too_small_for_any_chunk_is_refused_by_name(start: StartBroker) -> None:
    broker = start("max_packet_size 2000")

    async def scenario() -> None:
        with refusal(BadSetting, "datagram", 2000):
            async with mqtt_party(broker.address("5"), "alice"):
                raise AssertionError("no chunk fits")

    asyncio.run(scenario())


def test_a_limit_that_the_broker_applies_in_silence_is_named_in_the_error(start: StartBroker) -> None:
    broker = start("message_size_limit 100000")

    async def scenario() -> None:
        address = broker.address("3.1.1")
        async with mqtt_party(address, "alice") as alice, mqtt_party(address, "bob"):
            with refusal(Unreachable, "chunk", 524288):
                await alice.send("bob", [bytes(MIB)], deadline_s=2.0)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_process_whose_place_is_taken_says_so_comes_back_and_gets_what_was_sent(
    start: StartBroker, version: MqttVersion, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker closes the older of two connections with one name; whoever is left when the other goes has it."""
    broker = start()

    async def scenario() -> None:
        address = broker.address(version)
        async with mqtt_party(address, "alice") as alice, mqtt_party(address, "bob") as bob:
            async with mqtt_party(address, "alice"):
                while "alice" not in caplog.text:
                    await asyncio.sleep(0.1)
            sending = asyncio.create_task(bob.send("alice", [b"still there"], PATIENCE_S))
            received = await asyncio.wait_for(alice.receive(), PATIENCE_S)
            assert bytes(received.payload) == b"still there"
            await sending

    with caplog.at_level("WARNING", logger="veilsum"):
        asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
    assert "another process" in caplog.text


LONELY_PARTY = """
import asyncio, sys
from tests.support.tables.sealed_party import mqtt_party
from veilsum.transport.mqtt.broker_address import BrokerAddress

async def main():
    async with mqtt_party(BrokerAddress("127.0.0.1", int(sys.argv[1])), "bob") as bob:
        print("ready", flush=True)
        await bob.receive()

asyncio.run(main())
"""


def test_a_killed_process_is_hinted_at_by_its_last_will(start: StartBroker) -> None:
    broker = start()
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", LONELY_PARTY, str(broker.port)]

    async def scenario() -> None:
        gone = asyncio.Event()
        async with mqtt_party(broker.address(), "alice", on_gone=lambda name: name == "bob" and gone.set()):
            with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
                process.kill()
            await asyncio.wait_for(gone.wait(), PATIENCE_S)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_tls_passwords_and_access_rules_let_the_right_parties_through(
    guarded: tuple[BrokerProcess, Path], version: MqttVersion
) -> None:
    broker, folder = guarded
    tls = Tls(ca=folder / "ca.pem")

    async def scenario() -> None:
        alice_at = broker.address(version, "alice", "secret a", tls)
        bob_at = broker.address(version, "bob", "secret b", tls)
        async with mqtt_party(alice_at, "alice") as alice, mqtt_party(bob_at, "bob") as bob:
            sending = asyncio.create_task(alice.send("bob", [bytes(2 * MIB)], PATIENCE_S))
            assert len((await bob.receive()).payload) == 2 * MIB
            await sending

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_writing_under_a_name_that_is_not_ours_reaches_nobody(
    guarded: tuple[BrokerProcess, Path], version: MqttVersion
) -> None:
    """The broker answers such a publication as if all were well; the missing acknowledgement tells."""
    broker, folder = guarded
    tls = Tls(ca=folder / "ca.pem")

    async def scenario() -> None:
        bob_at = broker.address(version, "bob", "secret b", tls)
        eve_at = broker.address(version, "eve", "secret e", tls)
        async with mqtt_party(bob_at, "bob"), mqtt_party(eve_at, "alice") as impostor:
            with refusal(Unreachable, "answered", "broker", receiver="bob"):
                await impostor.send("bob", [b"I am alice"], deadline_s=0.5)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["3.1.1", "5", "auto"])
def test_a_wrong_password_is_refused_at_once(
    guarded: tuple[BrokerProcess, Path], version: MqttVersion
) -> None:
    broker, folder = guarded

    async def scenario() -> None:
        address = broker.address(version, "alice", "guess", Tls(ca=folder / "ca.pem"))
        with refusal(BrokerRefused, "refused", "authorized"):
            async with mqtt_party(address, "alice"):
                raise AssertionError("the broker let us in")

    asyncio.run(scenario())


def test_a_broker_with_a_certificate_we_do_not_trust_is_refused(guarded: tuple[BrokerProcess, Path]) -> None:
    broker, _ = guarded

    async def scenario() -> None:
        address = broker.address("5", "alice", "secret a", Tls())
        with pytest.raises(BrokerRefused, match="certificate verify failed"):
            async with mqtt_party(address, "alice"):
                raise AssertionError("the certificate was trusted")

    asyncio.run(scenario())


@pytest.mark.parametrize("answer", [128, ReasonCode(PacketTypes.SUBACK, identifier=135)])
def test_a_topic_that_the_broker_does_not_let_us_read_is_an_error_with_its_name(
    start: StartBroker, monkeypatch: pytest.MonkeyPatch, answer: int | ReasonCode
) -> None:
    broker = start()

    async def deny(client: BrokerClient, topic: str) -> tuple[int | ReasonCode]:
        return (answer,)

    async def scenario() -> None:
        monkeypatch.setattr(BrokerClient, "subscribe", deny)
        with refusal(BrokerRefused, "alice", "subscribe", "/alice/from/+"):
            async with mqtt_party(broker.address(), "alice"):
                raise AssertionError("the broker let us read")

    asyncio.run(scenario())


def test_passwords_do_not_show() -> None:
    address = BrokerProcess([], 1883, Path("log")).address("5", "alice", "hunter2")
    assert "hunter2" not in f"{address} {address!r}"


@pytest.mark.long
@pytest.mark.parametrize("size_mib", [64, 256])
def test_large_models_arrive(start: StartBroker, size_mib: int) -> None:
    broker = start()
    message = os.urandom(size_mib * MIB)

    async def scenario() -> None:
        async with mqtt_party(broker.address(), "alice") as alice, mqtt_party(broker.address(), "bob") as bob:
            sending = asyncio.create_task(alice.send("bob", [message], 5 * PATIENCE_S))
            received = await asyncio.wait_for(bob.receive(), 5 * PATIENCE_S)
            assert received.payload == message
            await sending

    asyncio.run(scenario())
