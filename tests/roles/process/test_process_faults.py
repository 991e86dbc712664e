"""Processes that are killed, stopped, doubled, cut off and lied to: the run finishes, or says why it did not.

Nothing that was committed is lost in any of these, and no stranger has an influence on the result.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.federations import Company, Role, broker_of, change_settings, make_federation, wait_until
from veilsum.roles.federation.enrolment import begin_anew, evict_party
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.process.held_model import held_model
from veilsum.simulations.run.simulate import simulate

pytestmark = [needs_mosquitto, pytest.mark.long]

CRASHING = str(Path(__file__).parents[2] / "support" / "crashing.py")


@contextmanager
def running(
    folder: Path, scheme: str, parties: int, **settings: Any
) -> Iterator[tuple[Company, BrokerProcess]]:
    """A federation with a broker, and nobody started yet."""
    fed = make_federation(folder / "fed", scheme, parties, **settings)
    broker = broker_of(fed, folder / "broker")
    broker.start()
    try:
        with Company(fed) as company:
            yield company, broker
    finally:
        broker.stop()


def crash_at(company: Company, name: str, point: str, *arguments: str) -> Role:
    return company.start(name, *arguments, program=(CRASHING, point))


def require_finished(*roles: Role) -> None:
    for role in roles:
        assert role.end() == 0, role.said()


def require_orderly_end(server: Role) -> None:
    """The run has all its rounds, or ended with a reason."""
    code = server.end()
    assert code == 0 or (code == 1 and server.told("run_failed")[-1]["reason"]), server.said()


def committed_rounds(company: Company) -> int:
    """How many rounds are on the disks of those who hold the model."""
    fed = company.loaded
    holders = ("server",) if fed.config.load_scheme().server_holds_model else fed.roster.participants
    return max(held_model(fed, name)[1] for name in holders)


def test_one_of_five_killed_in_mid_round_and_the_broker_for_five_seconds(tmp_path: Path) -> None:
    """A client dies before its upload, then the broker is gone for five seconds: the model is committed."""
    with running(tmp_path, "masked", 5, rounds=3, phase_s=15.0, training_s=5.0, patience_s=30.0) as (
        company,
        broker,
    ):
        killed = crash_at(company, "p3", "send:upload.masked")
        roles = {name: company.start(name) for name in company.names() if name != "p3"}
        assert killed.end() == -signal.SIGKILL
        broker.kill()
        time.sleep(5.0)
        broker.start()
        require_finished(*roles.values())
        assert committed_rounds(company) == 3
        assert "p3" not in roles["server"].told("round_committed")[-1]["members"]


CLIENT_POINTS = (
    "session.hello",
    "masked.round-keys",
    "shares.sealed",
    "upload.masked",
    "survivors.signature",
    "shares.released",
)


@pytest.mark.parametrize("kind", CLIENT_POINTS)
def test_a_client_killed_at_any_phase_does_not_end_the_run(tmp_path: Path, kind: str) -> None:
    """The others commit every round, whichever message the killed client did not send."""
    with running(tmp_path, "masked", 5) as (company, _):
        killed = crash_at(company, "p1", f"send:{kind}")
        roles = {name: company.start(name) for name in company.names() if name != "p1"}
        assert killed.end() == -signal.SIGKILL
        require_finished(*roles.values())
        assert committed_rounds(company) == 2


PEER_POINTS = (
    "ampc.seeds-for-neighbour",
    "ampc.model-held",
    "ampc.share-vector",
    "shares.sealed",
    "upload.masked",
    "survivors.signature",
    "shares.released",
    "ampc.result-digest",
)


@pytest.mark.parametrize("kind", PEER_POINTS)
def test_a_peer_killed_at_any_phase_leaves_an_orderly_run(tmp_path: Path, kind: str) -> None:
    """The run ends with all rounds or a reason, and a peer that comes back finds it where it is."""
    with running(tmp_path, "ampc", 4, rounds=2, shares="tensor") as (company, _):
        killed = crash_at(company, "p1", f"send:{kind}")
        roles = {name: company.start(name) for name in company.names() if name != "p1"}
        assert killed.end() == -signal.SIGKILL
        returned = company.start("p1", "--resume")
        require_orderly_end(roles["server"])
        returned.end()


@pytest.mark.parametrize("operation", [4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 24])
def test_a_server_killed_at_a_write_goes_on_from_what_was_committed(tmp_path: Path, operation: int) -> None:
    """Started again with --resume it finishes the run with everyone, from the round it had committed."""
    with running(tmp_path, "masked", 3, rounds=3, patience_s=25.0) as (company, _):
        killed = crash_at(company, "server", f"disk:{operation}")
        parties = [company.start(name) for name in company.loaded.roster.participants]
        assert killed.end() == -signal.SIGKILL
        told = [fact["round"] for fact in killed.told("round_committed")]
        server = company.start("server", "--resume")
        require_finished(server, *parties)
        assert server.told("round_committed")[0]["round"] > max(told, default=0)
        assert committed_rounds(company) == 3


def test_a_client_that_was_killed_joins_the_next_round_when_it_comes_back(tmp_path: Path) -> None:
    """Its checkpoint lets it take part again, and it ends with the same model as everybody."""
    with running(tmp_path, "masked", 4, rounds=6, opening_s=8.0) as (company, _):
        roles = {name: company.start(name) for name in company.names() if name != "p4"}
        victim = crash_at(company, "p4", "send:upload.masked")
        assert victim.end() == -signal.SIGKILL
        returned = company.start("p4", "--resume")
        require_finished(*roles.values(), returned)
        assert any("p4" in fact["members"] for fact in roles["server"].told("round_committed"))
        assert (
            len({role.told("run_finished")[-1]["model_sha256"] for role in (*roles.values(), returned)}) == 1
        )


def test_a_stopped_participant_holds_nobody_up(tmp_path: Path) -> None:
    """A client under SIGSTOP is done without; when it goes on it comes to an orderly end."""
    with running(tmp_path, "masked", 5) as (company, _):
        roles = company.start_all()
        roles["p2"].wait_for("session_began")
        roles["p2"].signal(signal.SIGSTOP)
        others = [role for name, role in roles.items() if name != "p2"]
        require_finished(*others)
        roles["p2"].signal(signal.SIGCONT)
        assert roles["p2"].end() in (0, 1)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_that_is_restarted_in_mid_round_changes_nothing(tmp_path: Path, how: str) -> None:
    """With or without an orderly end, the parties reconnect and the model is that of an undisturbed run."""
    with running(tmp_path, "mpc", 3, phase_s=15.0, training_s=5.0, patience_s=30.0) as (company, broker):
        roles = company.start_all()
        roles["server"].wait_for("session_began")
        getattr(broker, how)()
        time.sleep(1.0)
        broker.start()
        require_finished(*roles.values())
        straight = simulate(company.loaded.folder / "federation.toml")
        assert roles["p1"].told("run_finished")[-1]["model_sha256"] == sha256_of(straight.model)


@pytest.mark.parametrize("scheme", ["plain", "ampc", "masked"])
def test_an_outage_longer_than_every_deadline_but_the_patience_ends_no_run(
    tmp_path: Path, scheme: str
) -> None:
    """In the middle of a run the broker is gone for fifteen seconds, and whatever is tried meanwhile takes four."""
    with running(tmp_path, scheme, 4, rounds=6, seed=5, patience_s=60.0) as (company, broker):
        roles = company.start_all()
        roles["server"].wait_for("round_committed", round=2)
        broker.kill()
        time.sleep(15.0)
        broker.start()
        require_finished(*roles.values())
        assert committed_rounds(company) == 6


@pytest.mark.parametrize("scheme", ["plain", "mpc", "ampc"])
def test_a_resumed_run_equals_a_straight_one_and_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, scheme: str
) -> None:
    """Two rounds, damage to one newest checkpoint, then --resume to four: the bytes of four rounds in a row.

    A peer that passed one over has no vote until the next round is committed, and three of four are enough.
    """
    with running(tmp_path, scheme, 3 if scheme == "plain" else 4, rounds=2) as (company, _):
        require_finished(*company.start_all().values())
        holder = "server" if scheme == "plain" else "p2"
        newest = max((company.loaded.folder / "state" / holder).glob("checkpoint-*.json"))
        newest.write_text(newest.read_text().replace('"rounds_done": 2', '"rounds_done": 1'))
        company.loaded = change_settings(company.loaded, rounds=4)
        again = company.start_all("--resume")
        require_finished(*again.values())
        assert any("passed over" in str(fact.get("text")) for fact in again[holder].told("warning"))
        straight = simulate(company.loaded.folder / "federation.toml")
        assert sha256_of(held_model(company.loaded, holder)[0]) == sha256_of(straight.model)


def test_an_identity_that_is_started_twice_is_refused_here_and_noticed_elsewhere(tmp_path: Path) -> None:
    """The same state folder is locked; from another one, the two push each other off the broker, which is told, and
    none ends of it: when one is stopped, the run goes on with the other.
    """
    with running(tmp_path, "masked", 4, patience_s=60.0) as (company, _):
        first = company.start("p1")
        first.wait_for("started")
        second = company.start("p1")
        assert second.end() == 1
        assert "another process is running as p1" in second.said()
        third = company.start("p1", "--state", str(tmp_path / "elsewhere"))
        wait_until(
            lambda: any(" as p1" in fact["text"] for one in (first, third) for fact in one.told("warning"))
        )
        assert first.process.poll() is None and third.process.poll() is None
        third.kill()
        others = [company.start(name) for name in company.names() if name != "p1"]
        require_finished(*others, first)


def test_replays_garbage_and_outsiders_do_not_change_the_result(tmp_path: Path) -> None:
    """A recorded run played back, retained garbage and forged statuses during the next run: the same model."""
    with running(tmp_path, "masked", 3) as (company, broker):
        recorded = asyncio.run(_record(company, broker))
        assert len(recorded) > 50
        folder = company.loaded.folder
        begin_anew(folder, folder / "organiser", None)
        shutil.rmtree(folder / "state")
        company.loaded = load_federation(folder)
        asyncio.run(_attack(company, broker, recorded))
        straight = simulate(company.loaded.folder / "federation.toml")
        assert sha256_of(held_model(company.loaded, "server")[0]) == sha256_of(straight.model)


async def _record(company: Company, broker: BrokerProcess) -> list[tuple[str, bytes]]:
    heard: list[tuple[str, bytes]] = []

    async def listen(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            heard.append((message.topic.value, message.payload))

    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await client.subscribe("#")
        reader = asyncio.create_task(listen(client))
        roles = company.start_all()
        for role in roles.values():
            assert await asyncio.to_thread(role.end) == 0, role.said()
        reader.cancel()
    return heard


async def _attack(company: Company, broker: BrokerProcess, recorded: list[tuple[str, bytes]]) -> None:
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        for topic in {topic for topic, _ in recorded}:
            await client.publish(topic, b"garbage" * 10, retain=True)
        roles = company.start_all()

        async def play() -> None:
            while True:
                for topic, payload in recorded:
                    await client.publish(topic, payload)
                    await client.publish(topic, payload[:-1] + bytes([payload[-1] ^ 1]))
                    await asyncio.sleep(0.002)

        player = asyncio.create_task(play())
        for role in roles.values():
            assert await asyncio.to_thread(role.end) == 0, role.said()
        player.cancel()


def test_a_party_with_another_roster_is_refused_by_all_and_the_rest_goes_on(tmp_path: Path) -> None:
    """p4 was evicted, but its machine still has the old files: nobody opens what it sends."""
    with running(tmp_path, "masked", 4) as (company, _):
        old = tmp_path / "old"
        shutil.copytree(company.loaded.folder, old)
        folder = company.loaded.folder
        evict_party(folder, folder / "organiser", "p4")
        stale = Company(load_federation(old))
        with stale:
            evicted = stale.start("p4")
            company.loaded = load_federation(folder)
            roles = company.start_all()
            require_finished(*roles.values())
            assert "p4 is not in roster version" in roles["server"].said()
            assert all("p4" not in fact["members"] for fact in roles["server"].told("round_committed"))
            assert evicted.end() == 1
            assert evicted.told("run_failed")[-1]["reason"] == "deadline passed"
