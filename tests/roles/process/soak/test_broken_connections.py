"""Whole federations whose connections break: they finish, and tell what happened in lines that programs can read."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.brokers.balancer import Balancer
from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.federations import Company, Role, make_federation, own_broker_of
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import AbortReason

pytestmark = [needs_mosquitto, pytest.mark.long]

TALKATIVE = str(Path(__file__).parents[3] / "support" / "talkative.py")
PATIENT = {"opening_s": 10.0, "phase_s": 30.0, "training_s": 20.0, "patience_s": 60.0}
OUTAGE_S = 2.0


def require_facts_alone(roles: list[Role]) -> None:
    for role in roles:
        assert role.end() == 0, role.said()
        assert not role.other_lines, role.other_lines


@pytest.mark.timeout(900)
def test_every_line_is_a_fact_although_the_broker_is_killed_in_transfer_and_all_code_is_talkative(
    tmp_path: Path,
) -> None:
    """TLS, messages of 16 MB, kill -9 again and again; libraries warn, log and print, threads and futures fail."""
    fed = make_federation(
        tmp_path / "fed", "masked", 3, task="vectors:2000000", rounds=6, broker_tls=True, **PATIENT
    )
    broker = own_broker_of(fed)
    broker.start()
    try:
        with Company(fed) as company:
            roles = [company.start(name, program=(TALKATIVE,)) for name in company.names()]
            roles[0].wait_for("round_began")
            for _ in range(8):
                time.sleep(0.7)
                broker.kill()
                time.sleep(0.3)
                broker.start()
            require_facts_alone(roles)
            for role in roles[1:]:
                assert {"this will change" in fact["text"] for fact in role.told("warning")} == {True, False}
                assert {fact["error"] for fact in role.told("unexpected")} == {"OSError"}
                assert any("Traceback" in fact["text"] for fact in role.told("printed"))
            assert all(role.told("link_lost") and role.told("link_restored") for role in roles)
            assert not roles[0].told("unexpected"), "what breaks with a connection is expected"
    finally:
        broker.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("reset", [False, True])
def test_a_federation_behind_a_load_balancer_comes_through_a_broker_that_restarts(
    tmp_path: Path, reset: bool
) -> None:
    """Handshakes break while everyone starts, and all connections for two seconds in mid-run: all rounds are done."""
    fed = make_federation(tmp_path / "fed", "ampc", 3, rounds=20, broker_tls=True, **PATIENT)
    broker = own_broker_of(fed, free_port())

    async def scenario() -> None:
        balancer = Balancer(broker.port, away=True, first_bytes=40, reset=reset)
        async with balancer.serving(fed.config.broker_port):
            with Company(fed) as company:
                roles = list(company.start_all().values())
                while balancer.accepted < 2 * len(roles):
                    await asyncio.sleep(0.1)
                await asyncio.to_thread(broker.start)
                balancer.away = False
                await asyncio.to_thread(roles[0].wait_for, "round_committed")
                balancer.away = True
                balancer.cut()
                await asyncio.to_thread(broker.kill)
                await asyncio.sleep(OUTAGE_S)
                await asyncio.to_thread(broker.start)
                balancer.away = False
                await asyncio.to_thread(require_facts_alone, roles)
                assert all(role.told("link_lost") for role in roles)

    try:
        asyncio.run(asyncio.wait_for(scenario(), 600.0))
    finally:
        broker.stop()


@pytest.mark.timeout(900)
def test_a_broker_that_stays_away_is_the_last_word_of_everyone_and_not_whom_they_missed(
    tmp_path: Path,
) -> None:
    """It is killed for good in mid-run: server and parties end typed, with their own connection as the cause."""
    fed = make_federation(tmp_path / "fed", "masked", 3, rounds=500)
    broker = own_broker_of(fed)
    broker.start()
    with Company(fed) as company:
        roles = company.start_all()
        roles["server"].wait_for("round_committed")
        broker.kill()
        for name, role in roles.items():
            assert role.end() == 1, role.said()
            last = role.facts[-1]
            assert (last["fact"], last["culprit"]) == ("run_failed", name), role.said()
            assert last["reason"] == AbortReason.LINK_LOST.value
            require_mentions(last["detail"], name, str(fed.config.broker_port), "broker")
