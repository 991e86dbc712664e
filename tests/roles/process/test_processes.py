"""Federations as operating-system processes over a real broker: the quick half. The slow half has the mark `long`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import numpy as np
import pytest

from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.federations import Company, broker_of, change_settings, make_federation
from tests.support.refusals import require_mentions
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.enrolment import begin_anew
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.process.held_model import held_model
from veilsum.simulations.run.simulate import simulate

pytestmark = needs_mosquitto


@pytest.fixture
def fed(tmp_path: Path) -> LoadedFederation:
    return make_federation(tmp_path / "fed")


@pytest.fixture
def broker(fed: LoadedFederation, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = broker_of(fed, tmp_path / "broker")
    process.start()
    yield process
    process.stop()


class Eavesdropper:
    """Subscribes to everything on a broker and remembers it; `logs` is what the processes wrote meanwhile."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.heard: list[bytes] = []
        self.logs = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> Iterator[None]:  # type: ignore[misc]  # an async generator
        async with aiomqtt.Client("127.0.0.1", self._broker.port) as client:
            await client.subscribe("#")
            reader = asyncio.create_task(self._read(client))
            try:
                yield
            finally:
                reader.cancel()

    async def _read(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            self.heard.append(message.payload)


def run_watched(fed: LoadedFederation, broker: BrokerProcess) -> Eavesdropper:
    """A whole run with somebody listening."""
    eavesdropper = Eavesdropper(broker)

    async def run() -> None:
        async with eavesdropper.listening():
            with Company(fed) as company:
                roles = await asyncio.to_thread(company.start_all)
                for role in roles.values():
                    assert await asyncio.to_thread(role.end) == 0, role.said()
                    eavesdropper.logs += role.said()

    asyncio.run(run())
    return eavesdropper


def test_a_run_over_mqtt_gives_the_model_of_the_run_in_memory_and_the_broker_learns_nothing_of_it(
    fed: LoadedFederation, broker: BrokerProcess
) -> None:
    """Same model bytes as `simulate`; no model, key or password in the capture, no key in logs and checkpoints."""
    eavesdropper = run_watched(fed, broker)
    capture = b"\0".join(eavesdropper.heard)
    in_memory = simulate(fed.folder / "federation.toml")
    held = {name: held_model(fed, name)[0] for name in ("server", *fed.roster.participants)}
    assert {sha256_of(model) for model in held.values()} == {sha256_of(in_memory.model)}
    assert b"sent_bytes" in capture, "statuses are signed and not sealed: the capture works"
    for content in (*contents_of(in_memory.model), *keys_of(fed)):
        assert content not in capture
    state = b"\0".join(path.read_bytes() for path in (fed.folder / "state").glob("*/*"))
    assert in_memory.model.tobytes() in state, "checkpoints were searched"
    for key in keys_of(fed):
        assert key not in state
        assert key not in eavesdropper.logs.encode()


def contents_of(model: np.ndarray) -> Iterator[bytes]:
    """Pieces of a model, and words that stand in messages: an eavesdropper must find none of them."""
    for start in range(0, len(model) - 4, 4):
        yield model[start : start + 4].tobytes()
    yield from (b"upload.masked", b"round.opened", b"session.hello", b"samples")


def keys_of(fed: LoadedFederation) -> Iterator[bytes]:
    """Private keys in the forms in which they could leak, and broker passwords."""
    for path in (fed.folder / "keys").glob("*/*"):
        if path.name == "identity.json":
            private = json.loads(path.read_text())["signing_private"]
            yield from (private.encode(), base64.b64decode(private), base64.b64decode(private).hex().encode())
        if path.name == "broker-password":
            yield path.read_bytes().strip()


def test_going_on_after_the_end_gives_the_bytes_of_one_long_run(
    fed: LoadedFederation, broker: BrokerProcess
) -> None:
    """Two rounds, then `rounds = 3` and --resume, equal three rounds straight; without --resume it is refused."""
    begin_anew(fed.folder, fed.folder / "organiser", None)
    shutil.rmtree(fed.folder / "state", ignore_errors=True)
    for rounds, arguments in ((2, ()), (3, ("--resume",))):
        fed = change_settings(fed, rounds=rounds)
        with Company(fed) as company:
            roles = company.start_all(*arguments)
            assert [role.end() for role in roles.values()] == [0] * 4, roles["server"].said()
    straight = simulate(fed.folder / "federation.toml")
    assert sha256_of(held_model(fed, "server")[0]) == sha256_of(straight.model)
    with Company(fed) as company:
        refused = company.start("server")
        assert refused.end() == 2
        require_mentions(refused.said(), "--resume", "--fresh")


def test_parties_that_do_not_belong_are_refused_by_name_before_they_send_anything(
    fed: LoadedFederation, capfd: pytest.CaptureFixture[str]
) -> None:
    """Wrong settings on one machine, an evicted party and the wrong role all exit with 2 and say what to do."""
    file = str(fed.folder / "federation.toml")
    assert cli.main(["peer", file, "--name", "p1"]) == 2
    assert "run veilsum client" in capfd.readouterr().err
    assert cli.main(["roster", "evict", str(fed.folder), "p1"]) == 0
    capfd.readouterr()
    assert cli.main(["client", file, "--name", "p1"]) == 2
    require_mentions(capfd.readouterr().err, "p1", "evicted")
    change = Path(file).read_text().replace("clip = 8.0", "clip = 4.0")
    Path(file).write_text(change)
    assert cli.main(["client", file, "--name", "p2"]) == 2
    require_mentions(capfd.readouterr().err, "clip", 4.0, 8.0)
