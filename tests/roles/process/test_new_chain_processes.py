"""Processes that begin another chain by the organiser's word: after all forgot, or with the model of a party."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.roles.process.test_chain_processes import company_of
from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import AbortReason
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.process.held_model import held_position

pytestmark = [needs_mosquitto, pytest.mark.long]

SCHEMES = ("masked", "ampc")


def run_all(company: Company, *arguments: str) -> None:
    """All processes, to the end of the run; afterwards all parties hold one state."""
    company.loaded = load_federation(company.loaded.folder)
    for role in company.start_all(*arguments).values():
        assert role.end() == 0, role.said()
    held = {held_position(company.loaded, name) for name in company.loaded.roster.participants}
    assert {position for position, _ in held} == {company.loaded.config.rounds}
    assert len(held) == 1


def fail_all(company: Company, reason: AbortReason, *mentions: str, fresh: str = "") -> None:
    """All processes with --resume, or --fresh for `fresh`; all end with this reason, and the way on."""
    flags = {name: "--fresh" if fresh in ("all", name) else "--resume" for name in company.names()}
    roles = {name: company.start(name, flag) for name, flag in flags.items()}
    for role in roles.values():
        assert role.end() == 1, role.said()
        last = role.told("run_failed")[-1]
        assert last["reason"] == reason.value
        require_mentions(last["detail"], *mentions)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_when_all_forgot_they_are_named_and_a_checkpoint_or_another_chain_goes_on(
    tmp_path: Path, scheme: str
) -> None:
    with company_of(tmp_path, scheme, 4) as company:
        folder = str(company.loaded.folder)
        run_all(company)
        fail_all(
            company,
            AbortReason.NO_QUORUM,
            *("p1", "p2", "p3", "p4", "vote", "checkpoint", "--new-chain", "--fresh"),
            fresh="all",
        )
        assert cli.main(["roster", "checkpoint", folder, "--from", "p1", "--from", "p2", "--yes"]) == 0
        run_all(company, "--resume")
        assert cli.main(["roster", "sign", folder, "--new-chain", "--yes"]) == 0
        run_all(company, "--fresh")


def test_after_the_last_round_another_chain_begins_with_the_model_of_a_party(tmp_path: Path) -> None:
    """Step by step as specs/guide.md, section 6, has it; a server whose folder is gone is given the state before."""
    with company_of(tmp_path, "masked", 4, task="digits") as company:
        folder, model = str(company.loaded.folder), str(tmp_path / "model.safetensors")
        run_all(company)
        shutil.rmtree(company.loaded.folder / "state" / "server")
        run_all(company, "--resume")
        assert cli.main(["export", folder, "--name", "p1", model]) == 0
        sent = []
        for name in company.loaded.roster.participants:
            key = company.loaded.key_folder(name)
            assert cli.main(["keys", "first-model", folder, "--key", str(key), "--init", model]) == 0
            sent += ["--first-model", str(key / "first-model.json")]
        assert cli.main(["roster", "sign", folder, *sent, "--new-chain", "--yes"]) == 0
        forgot = company.start("p1", "--fresh")
        assert forgot.end() == 2
        require_mentions(forgot.said(), "--init", "roster.json")
        run_all(company, "--fresh", "--init", model)
