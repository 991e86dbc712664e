"""Messages over a real broker: both protocol versions, garbage, foreign federations, limits, hints."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

import aiomqtt
import pytest

from tests.support.brokers.broker import BrokerProcess, embedded, free_port, needs_mosquitto
from tests.support.refusals import refusal
from tests.support.tables.sealed_party import FEDERATION, mqtt_party
from veilsum.transport.errors import BrokerUnreachable, Closed, TooLarge, Unreachable
from veilsum.transport.limits import MIB, Limits
from veilsum.transport.mqtt.broker_address import BrokerAddress, MqttVersion
from veilsum.transport.mqtt.client import LARGEST_ACCEPTED
from veilsum.transport.mqtt.topics import Topics
from veilsum.transport.mqtt.transport import MqttTransport

PATIENCE_S = 30.0


async def converse(alice: MqttTransport, bob: MqttTransport, message: bytes) -> None:
    """Both directions at once; what arrives must be what was sent."""
    async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(alice.send("bob", [message[:10], message[10:]], PATIENCE_S))
        tasks.create_task(bob.send("alice", [message], PATIENCE_S))
        for party, other in ((alice, "bob"), (bob, "alice")):
            received = await party.receive()
            assert (received.sender_hint, bytes(received.payload)) == (other, message)


@needs_mosquitto
@pytest.mark.parametrize("version", ["3.1.1", "5", "auto"])
def test_messages_of_several_chunks_travel_both_ways(broker: BrokerProcess, version: MqttVersion) -> None:
    async def scenario() -> None:
        address = broker.address(version)
        async with mqtt_party(address, "alice") as alice, mqtt_party(address, "bob") as bob:
            await converse(alice, bob, os.urandom(3 * MIB + 12345))
            await converse(alice, bob, b"")

    asyncio.run(scenario())


def test_the_embedded_broker_carries_messages_too(tmp_path) -> None:
    """It speaks MQTT 3.1.1 only and ignores anything else, so a version that is not given is found out."""
    process = embedded(tmp_path)
    process.start()

    async def scenario() -> None:
        guessing, told = process.address("auto"), process.address("3.1.1")
        async with mqtt_party(guessing, "alice") as alice, mqtt_party(told, "bob") as bob:
            await converse(alice, bob, os.urandom(MIB + 1))

    try:
        asyncio.run(scenario())
    finally:
        process.stop()


def test_start_order_does_not_matter(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with mqtt_party(broker.address(), "alice") as alice:
            sending = asyncio.create_task(alice.send("bob", [b"early"], PATIENCE_S))
            await asyncio.sleep(0.3)
            async with mqtt_party(broker.address(), "bob") as bob:
                assert bytes((await bob.receive()).payload) == b"early"
                await sending

    asyncio.run(scenario())


def test_garbage_retained_oversize_and_foreign_messages_are_ignored(broker: BrokerProcess) -> None:
    topics = Topics(FEDERATION)
    mailbox = topics.datagrams("bob", "alice")

    async def scenario() -> None:
        async with aiomqtt.Client("127.0.0.1", broker.port) as vandal:
            await vandal.publish(mailbox, b"retained garbage", qos=1, retain=True)
            address = broker.address()
            async with mqtt_party(address, "alice") as alice, mqtt_party(address, "bob") as bob:
                for junk in (b"", b"VS2", os.urandom(5000), bytes(LARGEST_ACCEPTED + 1)):
                    await vandal.publish(mailbox, junk, qos=1)
                    await vandal.publish(topics.status("bob"), junk, qos=1)
                    await vandal.publish(topics.datagrams("bob", "nobody"), junk, qos=1)
                await converse(alice, bob, b"in spite of it all")
            await vandal.publish(mailbox, b"", qos=1, retain=True)

    asyncio.run(scenario())


def test_two_federations_on_one_broker_never_mix(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        address = broker.address()
        async with (
            mqtt_party(address, "alice") as alice,
            mqtt_party(address, "bob") as bob,
            mqtt_party(address, "bob", federation="another") as stranger,
        ):
            await alice.send("bob", [b"for this bob"], PATIENCE_S)
            assert bytes((await bob.receive()).payload) == b"for this bob"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stranger.receive(), 0.2)

    asyncio.run(scenario())


def test_a_stranger_with_broker_access_and_no_key_reaches_nobody(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        mallory = mqtt_party(broker.address(), "alice", secret="guessed")
        async with mallory, mqtt_party(broker.address(), "bob") as bob:
            with pytest.raises(Unreachable, match="bob"):
                await mallory.send("bob", [b"trust me"], deadline_s=0.5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(bob.receive(), 0.1)

    asyncio.run(scenario())


def test_a_silent_receiver_is_named_by_the_deadline(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with mqtt_party(broker.address(), "alice") as alice:
            async with asyncio.timeout(PATIENCE_S):
                with refusal(Unreachable, "never", "answered", receiver="carol"):
                    await alice.send("carol", [b"anybody?"], deadline_s=0.3)

    asyncio.run(scenario())


def test_a_message_beyond_the_limit_is_refused_with_the_limit(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        limits = Limits(max_message_bytes=1000)
        async with mqtt_party(broker.address(), "alice", limits=limits) as alice:
            with refusal(TooLarge, 1001, "bob", "max_message_bytes", 1000):
                await alice.send("bob", [bytes(1001)], PATIENCE_S)

    asyncio.run(scenario())


def test_closing_ends_every_wait_with_a_typed_error(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        alice = mqtt_party(broker.address(), "alice")
        with pytest.raises(Closed):
            await alice.receive()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(alice)
            waiting = [
                asyncio.create_task(alice.receive()),
                asyncio.create_task(alice.send("nobody", [b""], PATIENCE_S)),
            ]
            await asyncio.sleep(0.05)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Closed, Closed]

    asyncio.run(scenario())


def test_a_cancelled_send_leaves_the_transport_usable(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with mqtt_party(broker.address(), "alice") as alice, mqtt_party(broker.address(), "bob") as bob:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(alice.send("nobody", [b"x"], PATIENCE_S), 0.05)
            await converse(alice, bob, b"still here")

    asyncio.run(scenario())


def test_a_party_that_leaves_or_is_lost_is_hinted_at(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        gone: list[str] = []
        async with mqtt_party(broker.address(), "alice", on_gone=gone.append):
            async with mqtt_party(broker.address(), "bob"):
                pass
            async with asyncio.timeout(PATIENCE_S):
                while "bob" not in gone:
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_statuses_reach_those_who_listen_and_are_not_kept(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with mqtt_party(broker.address(), "alice") as alice, mqtt_party(broker.address(), "bob") as bob:
            await alice.publish_status(b"nobody listens yet")
            statuses = bob.statuses()
            hearing = asyncio.create_task(anext(statuses))
            await asyncio.sleep(0.2)
            await alice.publish_status(b"round 3")
            status = await asyncio.wait_for(hearing, PATIENCE_S)
            assert (status.sender_hint, status.data) == ("alice", b"round 3")
            await statuses.aclose()
            with pytest.raises(TooLarge, match="status"):
                await alice.publish_status(bytes(65 * 1024))

    asyncio.run(scenario())


def test_no_broker_is_a_typed_error_with_its_address() -> None:
    async def scenario() -> None:
        port = free_port()
        with refusal(BrokerUnreachable, f"127.0.0.1:{port}"):
            async with mqtt_party(BrokerAddress("127.0.0.1", port), "alice", connect_within_s=0.3):
                raise AssertionError("there is no broker")

    asyncio.run(scenario())
