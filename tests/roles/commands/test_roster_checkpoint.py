"""`veilsum roster checkpoint` shows what it would sign, signs it with --yes, and refuses what could not go on.

The scheme is `masked` as it is where its parties hold the chain.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.participation import Given
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.wire.messages import Stamp
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation, sign_again
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.federation.pins import accept_roster
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import state_folder
from veilsum.roles.process.persistent_state import PersistentState

NAMES = ("alice", "bob", "carol", "dora")
STATE = bytes(range(32))


@pytest.fixture(autouse=True)
def _chained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(find_scheme("masked")), "has_chain", True)


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    config = FederationConfig(scheme="masked", parties=NAMES, task="vectors:7", broker_tls=False)
    create_federation(tmp_path / "fed", config)
    return tmp_path / "fed"


def checkpoint(fed: Path, *more: str, position: int = 7, state: str = STATE.hex()) -> int:
    return cli.main(
        ["roster", "checkpoint", str(fed), "--position", str(position), "--state-hash", state, *more]
    )


def anchor_of(fed: Path) -> Anchor:
    anchor = load_federation(fed).roster.anchor
    assert anchor is not None
    return anchor


def test_without_yes_it_shows_what_it_would_sign_and_signs_nothing(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (fed / "roster.json").read_bytes()
    assert checkpoint(fed, "--evict", "bob") == 2
    shown = capsys.readouterr().out
    require_mentions(shown, 2, 7, "without", "bob", STATE.hex(), "alice", "carol", "dora", "--yes")
    assert (fed / "roster.json").read_bytes() == before


def test_with_yes_the_chain_goes_on_from_there(fed: Path) -> None:
    chain = anchor_of(fed).chain
    assert checkpoint(fed, "--yes") == 0
    assert anchor_of(fed) == Anchor(chain, 7, STATE, load_federation(fed).roster.participants, 1)
    accepted = accept_roster(fed / "roster.json", fed / "keys" / "alice")
    assert (accepted.version, accepted.roster.anchor) == (2, anchor_of(fed))


def test_a_checkpoint_can_leave_out_a_party(fed: Path) -> None:
    assert checkpoint(fed, "--evict", "bob", "--yes") == 0
    loaded = load_federation(fed)
    assert loaded.roster.participants == anchor_of(fed).electorate == ("alice", "carol", "dora")
    assert dict(loaded.signed.evicted) == {"bob": 2}


def test_a_later_signing_keeps_the_checkpoint(fed: Path) -> None:
    assert checkpoint(fed, "--electorate", "dora,alice,bob", "--yes") == 0
    before = anchor_of(fed)
    assert before.electorate == ("alice", "bob", "dora")
    sign_again(fed, fed / "organiser")
    assert anchor_of(fed) == before
    assert checkpoint(fed, "--yes", position=8) == 0
    assert anchor_of(fed).position == 8


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--evict", "zoe"), "zoe"),
        (("--evict", "server"), "server"),
        (("--electorate", "alice,bob,zoe"), "zoe"),
        (("--electorate", "alice,bob"), "min_parties"),
        (("--electorate", "alice,alice,bob"), "once"),
        (("--state-hash", "xyz"), "hexadecimal"),
        (("--state-hash", "00ff"), "32"),
        (("--position", "-1"), "before"),
    ],
)
def test_what_could_not_go_on_is_refused_and_nothing_is_signed(
    fed: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    before = (fed / "roster.json").read_bytes()
    assert checkpoint(fed, "--yes", *arguments) == 2
    assert says in capsys.readouterr().err
    assert (fed / "roster.json").read_bytes() == before


def holding(anchor: Anchor, model: float) -> PersistentState:
    """What a party has that began with this model, whatever was signed."""
    values = np.full(7, model, dtype=np.float32)
    first = ChainState.of(anchor.chain, 0, b"", values)
    record = ChainRecord(0, first, anchor=anchor.digest, chain=anchor.chain)
    return PersistentState(0, values, chain=record)


def hold(fed: Path, name: str, model: float) -> None:
    """Let a party's folder hold the first state of the chain, or that of another model."""
    loaded = load_federation(fed)
    state = holding(anchor_of(fed), model)
    folder = StateFolder(state_folder(fed, name), PartyId(name), loaded.config.agreed_digest)
    folder.acquire()
    folder.save(state)
    folder.release()


def test_position_and_state_are_read_from_folders_that_agree(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, command = anchor_of(fed), ["roster", "checkpoint", str(fed), "--yes", "--from", "alice"]
    for name, model in (("alice", 0.0), ("bob", 0.0), ("carol", 1.0)):
        hold(fed, name, model)
    assert cli.main([*command, "--from", "carol"]) == 2
    require_mentions(capsys.readouterr().err, "alice", "carol", before.state_hash.hex())
    assert cli.main([*command, "--from", "dora"]) == 2
    assert cli.main([*command, "--position", "0"]) == 2
    assert anchor_of(fed) == before
    assert cli.main([*command, "--from", "bob"]) == 0
    assert anchor_of(fed) == replace(before, checkpoint=1)


def test_a_checkpoint_opens_its_position_anew_and_refuses_other_states(fed: Path) -> None:
    hold(fed, "alice", 0.0)
    first = load_federation(fed).roster
    state = PersistentState(0, np.zeros(7, dtype=np.float32))
    state.join_chain(first)
    state.record.give(Stamp(b"", 0, 0), bytes(32), bytes(32))
    state.record.spend(Stamp(b"", 0, 0), NAMES, NAMES)
    assert cli.main(["roster", "checkpoint", str(fed), "--yes", "--from", "alice"]) == 0
    again = load_federation(fed).roster
    state.join_chain(again)
    assert state.chain is not None and again.anchor is not None
    assert state.chain.anchor == again.anchor.digest
    assert (state.record.spent, state.record.given) == ({}, Given())
    assert first.anchor is not None
    for model in (1.0, 2.0):
        other = holding(first.anchor, model)
        with refusal(LocalProtocolError, "--fresh", again.anchor.state_hash.hex()):
            other.join_chain(again)


def test_a_position_before_the_last_checkpoint_is_refused(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checkpoint(fed, "--yes") == 0
    assert checkpoint(fed, "--yes", position=6) == 2
    assert "7" in capsys.readouterr().err


def test_a_federation_without_a_chain_has_nothing_to_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = FederationConfig(scheme="plain", parties=NAMES, task="vectors:7", broker_tls=False)
    create_federation(tmp_path / "plain", config)
    assert checkpoint(tmp_path / "plain", "--yes") == 2
    assert "anchor" in capsys.readouterr().err
