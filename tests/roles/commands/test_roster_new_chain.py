"""`veilsum roster sign --new-chain` says what it costs, begins another chain with --yes, and refuses where none is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.roles.commands.test_roster_checkpoint import anchor_of, checkpoint, hold
from tests.support.refusals import require_mentions
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation, create_party
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import state_folder

NAMES = ("alice", "bob", "carol", "dora")


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    config = FederationConfig(scheme="masked", parties=NAMES, task="vectors:7", broker_tls=False)
    create_federation(tmp_path / "fed", config)
    return tmp_path / "fed"


def test_without_yes_the_cost_is_shown_and_nothing_is_signed(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (fed / "roster.json").read_bytes()
    assert cli.main(["roster", "sign", str(fed), "--new-chain"]) == 2
    require_mentions(capsys.readouterr().out, anchor_of(fed).chain.hex(), "export", "--yes")
    assert (fed / "roster.json").read_bytes() == before


def test_another_chain_begins_with_the_same_model_whatever_checkpoints_there_were(fed: Path) -> None:
    first = anchor_of(fed)
    assert checkpoint(fed, "--yes") == 0
    assert cli.main(["roster", "sign", str(fed)]) == 0
    assert anchor_of(fed).chain == first.chain
    assert cli.main(["roster", "sign", str(fed), "--new-chain", "--yes"]) == 0
    again = anchor_of(fed)
    assert again.chain != first.chain
    assert again == replace(first, chain=again.chain, state_hash=again.state_hash)


def test_a_folder_of_the_chain_before_is_not_one_that_lost_what_it_knew(fed: Path) -> None:
    """So its party has a vote on the new chain, and none if it starts with --fresh a second time."""
    folder = StateFolder(
        state_folder(fed, "alice"), PartyId("alice"), load_federation(fed).config.agreed_digest
    )
    hold(fed, "alice", 0.0)
    assert not folder.knows_other_chain_than(load_federation(fed).roster)
    assert cli.main(["roster", "sign", str(fed), "--new-chain", "--yes"]) == 0
    assert folder.knows_other_chain_than(load_federation(fed).roster)
    hold(fed, "alice", 0.0)
    assert not folder.knows_other_chain_than(load_federation(fed).roster)


def test_only_the_organiser_of_a_chain_begins_another(
    fed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (fed / "roster.json").read_bytes()
    create_party(tmp_path / "mine", "alice", Role.CLIENT)
    words = ["roster", "sign", str(fed), "--new-chain", "--yes", "--organiser", str(tmp_path / "mine")]
    assert cli.main(words) == 2
    assert (fed / "roster.json").read_bytes() == before
    config = FederationConfig(scheme="plain", parties=NAMES, task="vectors:7", broker_tls=False)
    create_federation(tmp_path / "plain", config)
    capsys.readouterr()
    assert cli.main(["roster", "sign", str(tmp_path / "plain"), "--new-chain", "--yes"]) == 2
    require_mentions(capsys.readouterr().err, "chain", "scheme")
