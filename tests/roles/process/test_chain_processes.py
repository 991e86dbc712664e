"""Processes on a chain of models: a spoiled sum is survived by the organiser's checkpoint, a lost disk by --fresh."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, broker_of, make_federation
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import AbortReason
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.process.held_model import held_position

pytestmark = [needs_mosquitto, pytest.mark.long]

MISCOUNTING = str(Path(__file__).parents[2] / "support" / "miscounting.py")
SCHEMES = ("masked", "mpc", "ampc")


@contextmanager
def company_of(folder: Path, scheme: str, parties: int, **settings: Any) -> Iterator[Company]:
    fed = make_federation(folder / "fed", scheme, parties, **settings)
    broker = broker_of(fed, folder / "broker")
    broker.start()
    try:
        with Company(fed) as company:
            yield company
    finally:
        broker.stop()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_spoiled_sum_commits_nothing_and_a_checkpoint_without_the_spoiler_goes_on(
    tmp_path: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """p4 counts itself twice: all honest parties end with the cohort and the way on, which leads to the last round."""
    with company_of(tmp_path, scheme, 4, rounds=2) as company:
        folder = company.loaded.folder
        honest = {name: company.start(name) for name in company.names() if name != "p4"}
        company.start("p4", program=(MISCOUNTING,))
        for role in honest.values():
            assert role.end() == 1, role.said()
            last = role.told("run_failed")[-1]
            assert last["reason"] == AbortReason.CHECK_FAILED.value
            require_mentions(last["detail"], "p1", "p2", "p3", "p4", "roster", "checkpoint")
            assert not role.told("round_committed")
        for role in company.roles:
            role.kill()
        before = load_federation(folder).roster.anchor
        assert before is not None
        assert {held_position(company.loaded, name) for name in ("p1", "p2", "p3")} == {
            (0, before.state_hash)
        }
        sources = ["--from", "p1", "--from", "p2", "--from", "p3"]
        assert cli.main(["roster", "checkpoint", str(folder), *sources, "--evict", "p4", "--yes"]) == 0
        capsys.readouterr()
        company.loaded = load_federation(folder)
        again = company.start_all("--resume")
        for role in again.values():
            assert role.end() == 0, role.said()
        assert len({held_position(company.loaded, name) for name in ("p1", "p2", "p3")}) == 1
        assert held_position(company.loaded, "p1")[0] == 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_party_that_lost_its_disk_takes_part_again(tmp_path: Path, scheme: str) -> None:
    """p2 is stopped, its folder deleted, and started with --fresh: all rounds are committed, the last ones with it."""
    with company_of(tmp_path, scheme, 5, rounds=12, opening_s=6.0, patience_s=20.0) as company:
        roles = company.start_all()
        roles["p2"].wait_for("round_committed")
        roles["p2"].signal(signal.SIGTERM)
        roles["p2"].end()
        shutil.rmtree(company.loaded.folder / "state" / "p2")
        roles["p2"] = company.start("p2", "--fresh")
        for role in roles.values():
            assert role.end() == 0, role.said()
        assert any("no vote" in str(fact["text"]) for fact in roles["p2"].told("warning"))
        assert "p2" in roles["p1"].told("round_committed")[-1]["members"]
        held = {held_position(company.loaded, name) for name in company.loaded.roster.participants}
        assert {position for position, _ in held} == {12}
        assert len(held) == 1
