"""Federations as operating-system processes over a real broker: the quick half. The slow half has the mark `long`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import numpy as np
import pytest

from tests.support.broker import BrokerProcess, needs_mosquitto
from tests.support.federations import Company, broker_of, change_settings, make_federation
from veilsum.roles import cli
from veilsum.roles.federation import LoadedFederation
from veilsum.roles.holdings import held_model
from veilsum.roles.learner import sha256_of
from veilsum.simulations.simulate import simulate

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
    """Subscribes to everything on a broker and remembers it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.heard: list[tuple[str, bytes]] = []

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
            self.heard.append((message.topic.value, message.payload))


def run_watched(fed: LoadedFederation, broker: BrokerProcess) -> Eavesdropper:
    """A whole run with somebody listening."""
    eavesdropper = Eavesdropper(broker)

    async def run() -> None:
        async with eavesdropper.listening():
            with Company(fed) as company:
                roles = await asyncio.to_thread(company.start_all)
                for role in roles.values():
                    assert await asyncio.to_thread(role.end) == 0, role.said()

    asyncio.run(run())
    return eavesdropper


def test_a_run_over_mqtt_gives_the_model_of_the_run_in_memory_and_the_broker_learns_nothing_of_it(
    fed: LoadedFederation, broker: BrokerProcess
) -> None:
    """Same model bytes as `simulate`; the capture holds no model, update, key, password or agreed setting."""
    capture = b"\0".join(payload for _, payload in run_watched(fed, broker).heard)
    in_memory = simulate(fed.folder / "federation.toml")
    held = {name: held_model(fed, name)[0] for name in ("server", *fed.roster.participants)}
    assert {sha256_of(model) for model in held.values()} == {sha256_of(in_memory.model)}
    assert b"sent_bytes" in capture, "statuses are signed and not sealed: the capture works"
    for secret in secrets_of(fed, in_memory.model):
        assert secret not in capture


def secrets_of(fed: LoadedFederation, model: np.ndarray) -> Iterator[bytes]:
    """Eight bytes or more of everything that an eavesdropper must not find."""
    for start in range(0, len(model) - 4, 4):
        yield model[start : start + 4].tobytes()
    for folder in (fed.folder / "keys").iterdir():
        for path in folder.iterdir():
            if path.name == "identity.json":
                yield json.loads(path.read_text())["signing_private"].encode()
            if path.name == "broker-password":
                yield path.read_bytes().strip()
    yield from (b"upload.masked", b"round.opened", b"session.hello", b"samples", fed.config.task.encode())


def test_going_on_after_the_end_gives_the_bytes_of_one_long_run(
    fed: LoadedFederation, broker: BrokerProcess
) -> None:
    """Two rounds, then `rounds = 3` and --resume, equal three rounds straight; without --resume it is refused."""
    for rounds, argument in ((2, "--fresh"), (3, "--resume")):
        fed = change_settings(fed, rounds=rounds)
        with Company(fed) as company:
            roles = company.start_all(argument)
            assert [role.end() for role in roles.values()] == [0] * 4, roles["server"].said()
    straight = simulate(fed.folder / "federation.toml")
    assert sha256_of(held_model(fed, "server")[0]) == sha256_of(straight.model)
    with Company(fed) as company:
        refused = company.start("server")
        assert refused.end() == 2
        assert "--resume goes on from it" in refused.said()


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
    assert "p1 was evicted in version" in capfd.readouterr().err
    change = Path(file).read_text().replace("clip = 8.0", "clip = 4.0")
    Path(file).write_text(change)
    assert cli.main(["client", file, "--name", "p2"]) == 2
    assert "clip is 4.0 here and 8.0 in the signed roster" in capfd.readouterr().err
