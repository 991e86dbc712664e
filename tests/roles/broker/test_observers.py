"""What an observer may do at the broker of a federation: hear statuses, and nothing that others would notice."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest

from tests.support.brokers.broker import free_port, needs_mosquitto
from veilsum.roles.broker.connect import broker_address, observers_link
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.federation.folder import LoadedFederation, load_federation
from veilsum.transport.base import GoneHint
from veilsum.transport.mqtt.link import MqttLink
from veilsum.transport.mqtt.topics import Topics

WAIT_S = 20.0


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((), marks=needs_mosquitto, id="mosquitto"),
        pytest.param(("--embedded",), id="embedded"),
    ],
)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedFederation]:
    folder: Path = tmp_path_factory.mktemp("served") / "fed"
    config = FederationConfig(scheme="masked", parties=("alice", "bob", "carol"), broker_port=free_port())
    create_federation(folder, config)
    command = [sys.executable, "-m", "veilsum", "broker", str(folder), *request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield load_federation(folder)
        process.terminate()


def link_of(fed: LoadedFederation, name: str) -> MqttLink:
    return MqttLink(broker_address(fed, name, fed.key_folder(name)), Topics(fed.federation_id), name, WAIT_S)


async def publish_as_observer(fed: LoadedFederation, topic: str) -> None:
    """With the observer's own password; a broker may end the connection over it."""
    address = broker_address(fed, "observer-2", fed.key_folder("observer-2"))
    with contextlib.suppress(aiomqtt.MqttError):
        async with aiomqtt.Client(
            address.host,
            address.port,
            username=address.username,
            password=address.password,
            tls_context=None if address.tls is None else address.tls.context(),
            identifier="x",
            timeout=WAIT_S,
        ) as client:
            await client.publish(topic, b"flood", qos=1, timeout=1.0)


def test_an_observer_hears_statuses_and_its_coming_and_going_reaches_nobody(served: LoadedFederation) -> None:
    """It leaves no will, says no farewell, and what it publishes under its own or another name is not passed on."""
    topics = Topics(served.federation_id)

    async def scenario() -> None:
        async with link_of(served, "alice") as alice:
            watching = observers_link(served, served.key_folder("observer-1"))
            async with watching:
                heard = asyncio.create_task(anext(watching.statuses()))
                while not heard.done():
                    await alice.publish_status(b"well")
                    await asyncio.wait({heard}, timeout=0.1)
                assert (heard.result().sender_hint, heard.result().data) == ("alice", b"well")
            for topic in (
                topics.gone("observer-2"),
                topics.gone("alice"),
                topics.datagrams("alice", "observer-2"),
            ):
                await publish_as_observer(served, topic)
            async with link_of(served, "bob"):
                pass
            async with asyncio.timeout(WAIT_S):
                assert await alice.receive() == GoneHint("bob"), "the first that alice hears of anybody"

    asyncio.run(scenario())
