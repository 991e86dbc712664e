"""A broker that plays back earlier starts, and parties whose disks are lost or put back, as processes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiomqtt
import pytest

from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.federations import Company, broker_of, make_federation
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.broker.connect import transport_over_broker
from veilsum.roles.federation.folder import LoadedFederation, enter_federation
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.process.channels import IdentityLines
from veilsum.roles.process.entropy import system_entropy
from veilsum.roles.process.held_model import held_model
from veilsum.simulations.run.simulate import simulate
from veilsum.transport.base import ConnectionRequest
from veilsum.transport.errors import Unreachable
from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.lines.datagrams import ACK, CHUNK, CONFIRM, OPEN, PROBE, parse_head

pytestmark = [needs_mosquitto]

STARTS = 8
CRASHING = str(Path(__file__).parents[2] / "support" / "crashing.py")


@contextmanager
def running(
    folder: Path, parties: int, rounds: int, opening_s: float = 4.0
) -> Iterator[tuple[Company, BrokerProcess]]:
    fed = make_federation(folder / "fed", "masked", parties, rounds=rounds, opening_s=opening_s)
    broker = broker_of(fed, folder / "broker")
    broker.start()
    try:
        with Company(fed) as company:
            yield company, broker
    finally:
        broker.stop()


async def start_and_stop(loaded: LoadedFederation, name: str) -> None:
    """One start of a party that asks the server for a line, and is gone before it hears an answer."""
    folder = loaded.key_folder(name)
    _, identity = enter_federation(loaded.folder, folder)
    request = ConnectionRequest(
        federation=loaded.federation_id,
        address=name,
        life=system_entropy(LIFE_BYTES),
        crypto=IdentityLines(identity, loaded.roster, loaded.federation_id, system_entropy),
        on_gone=lambda _: None,
        connect_within_s=10.0,
    )
    async with transport_over_broker(loaded, name, folder)(request) as transport:
        with contextlib.suppress(Unreachable):
            await transport.send(SERVER, [b"anybody there?"], 0.3)


async def play(client: aiomqtt.Client, datagrams: list[tuple[str, bytes]]) -> None:
    while True:
        for topic, payload in datagrams:
            await client.publish(topic, payload)
            await asyncio.sleep(0.02)


async def attacked(company: Company, broker: BrokerProcess) -> list[tuple[str, bytes]]:
    """A whole run during which opens of earlier starts are played back; returns all that the broker carried."""
    heard: list[tuple[str, bytes]] = []

    async def listen(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            heard.append((message.topic.value, message.payload))

    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await client.subscribe("#")
        listening = asyncio.create_task(listen(client))
        for _ in range(STARTS):
            await start_and_stop(company.loaded, "p1")
        opens = sorted({one for one in heard if one[1][:4] == b"VS2" + bytes([OPEN])})
        assert len(opens) >= STARTS
        playing = asyncio.create_task(play(client, opens))
        for role in company.start_all().values():
            assert await asyncio.to_thread(role.end) == 0, role.said()
        for task in (playing, listening):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return [one for one in heard if one[1][:3] == b"VS2"]


def test_a_broker_that_plays_back_opens_of_eight_earlier_starts_sees_no_number_twice(tmp_path: Path) -> None:
    """No line that carried a chunk is evicted or begins anew, and the model is that of an undisturbed run."""
    with running(tmp_path, 3, rounds=2) as (company, broker):
        carried = asyncio.run(attacked(company, broker))
        boxes: dict[tuple[str, bytes, int], set[bytes]] = defaultdict(set)
        for topic, datagram in carried:
            if datagram[3] in (CHUNK, PROBE, ACK, CONFIRM):
                line, number = parse_head(memoryview(datagram))
                boxes[topic, line, number].add(datagram)
        assert all(len(sealed) == 1 for sealed in boxes.values())
        assert any(datagram[3] == CHUNK and "/from/p1" in topic for topic, datagram in carried)
        straight = simulate(company.loaded.folder / "federation.toml")
        assert sha256_of(held_model(company.loaded, SERVER)[0]) == sha256_of(straight.model)


@pytest.mark.parametrize("disk", ["lost", "put back"])
def test_a_party_whose_disk_is_lost_or_was_put_back_takes_part_again(tmp_path: Path, disk: str) -> None:
    """It comes back with --fresh, or with an older checkpoint: nobody refuses it, and all end with one model."""
    with running(tmp_path, 4, rounds=6, opening_s=8.0) as (company, _):
        roles = {name: company.start(name) for name in company.names() if name != "p4"}
        victim = company.start("p4", program=(CRASHING, "send:upload.masked"))
        assert victim.end() == -signal.SIGKILL
        state = company.loaded.folder / "state" / "p4"
        if disk == "lost":
            shutil.rmtree(state)
        else:
            for newer in sorted(state.glob("checkpoint-*.json"))[1:]:
                newer.unlink()
        returned = company.start("p4", "--fresh" if disk == "lost" else "--resume")
        for role in (*roles.values(), returned):
            assert role.end() == 0, role.said()
        assert any("p4" in fact["members"] for fact in roles[SERVER].told("round_committed"))
        assert "seen before" not in "".join(role.said() for role in roles.values())
        models = {role.told("run_finished")[-1]["model_sha256"] for role in (*roles.values(), returned)}
        assert len(models) == 1
