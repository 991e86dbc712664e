"""The first model is what all parties state, or nothing is signed; from then on the roster's anchor stays.

The scheme is `masked` as it is where its parties hold the chain.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.agreed.anchor import Anchor, first_anchor
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.machines.session import hash_model
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import (
    add_party,
    begin_anew,
    create_federation,
    create_party,
    evict_party,
    sign_again,
)
from veilsum.roles.federation.first_models import (
    FIRST_MODEL_FILE,
    read_first_model,
    state_first_model,
    write_first_model,
)
from veilsum.roles.federation.folder import load_federation, require_complete
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.federation.pins import pin_organiser
from veilsum.roles.federation.signed_roster import read_roster
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.first_model import make_beginning
from veilsum.roles.learning.model_files import layout_of, save_model

NAMES = ("alice", "bob", "carol")
CONFIG = FederationConfig(name="clinics", scheme="masked", parties=NAMES, task="vectors:7", broker_tls=False)
OTHER = np.arange(7, dtype=np.float32)


@pytest.fixture(autouse=True)
def _chained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(find_scheme("masked")), "has_chain", True)


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    """A federation whose keys are all here."""
    create_federation(tmp_path / "fed", CONFIG)
    return tmp_path / "fed"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A federation to which parties are still to be added."""
    create_federation(tmp_path / "fed", CONFIG, with_keys=False)
    return tmp_path / "fed"


def first_model() -> Model:
    return make_beginning(CONFIG, None).model


def anchor_of(fed: Path) -> Anchor | None:
    return read_roster(fed / "roster.json").roster.anchor


def begun(fed: Path) -> Anchor:
    anchor = anchor_of(fed)
    assert anchor is not None
    return anchor


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def party(tmp_path: Path, name: str, model: Model | None = None) -> Path:
    """The folder of a party with new keys, and its statement if it begins with a model."""
    folder = tmp_path / "post" / name
    identity, _ = create_party(folder, name, Role.CLIENT)
    if model is not None:
        write_first_model(folder / FIRST_MODEL_FILE, state_first_model(identity, model))
    return folder


def add(fed: Path, folder: Path) -> None:
    add_party(fed, fed / "organiser", folder, None)


def test_a_federation_with_its_own_keys_begins_with_the_model_of_task_and_seed(fed: Path) -> None:
    anchor = begun(fed)
    assert anchor == first_anchor(
        anchor.chain, hash_model(first_model()), load_federation(fed).roster.participants
    )
    assert anchor.position == 0
    for name in NAMES:
        assert read_first_model(fed / "keys" / name / FIRST_MODEL_FILE).length == 7
    require_complete(load_federation(fed))


def test_chains_of_two_federations_differ(fed: Path, tmp_path: Path) -> None:
    create_federation(tmp_path / "again", CONFIG)
    assert begun(tmp_path / "again").chain != begun(fed).chain


def test_a_scheme_without_chain_has_no_anchor_and_the_model_is_signed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(find_scheme("masked")), "has_chain", False)
    create_federation(tmp_path / "fed", CONFIG)
    assert anchor_of(tmp_path / "fed") is None
    agreed = read_roster(tmp_path / "fed" / "roster.json").first_model
    assert agreed is not None
    assert (agreed.length, agreed.model_hash) == (7, hash_model(first_model()))
    require_complete(load_federation(tmp_path / "fed"))


def test_the_anchor_is_made_when_the_last_party_has_enrolled(empty: Path, tmp_path: Path) -> None:
    """Before that nothing can begin, and the organiser needs neither task nor data for it."""
    for name in NAMES:
        assert anchor_of(empty) is None
        with refusal(ParameterError, "enrolled"):
            require_complete(load_federation(empty))
        add(empty, party(tmp_path, name, OTHER))
    assert begun(empty) == first_anchor(begun(empty).chain, hash_model(OTHER), begun(empty).electorate)
    assert begun(empty).electorate == NAMES


@pytest.mark.parametrize("model", [OTHER + 1, OTHER[:6]])
def test_a_party_that_begins_with_another_model_is_refused_by_name_and_nothing_changes(
    empty: Path, tmp_path: Path, model: Model
) -> None:
    add(empty, party(tmp_path, "alice", OTHER))
    other = party(tmp_path, "bob", model)
    before = contents(empty)
    with refusal(ParameterError, "alice", "bob", "--init"):
        add(empty, other)
    assert contents(empty) == before


def test_a_statement_that_the_party_did_not_sign_is_refused(empty: Path, tmp_path: Path) -> None:
    alice = party(tmp_path, "alice", OTHER)
    stated = read_first_model(alice / FIRST_MODEL_FILE)
    before = contents(empty)
    write_first_model(alice / FIRST_MODEL_FILE, replace(stated, model_hash=bytes(32)))
    with refusal(ParameterError, "alice", "ask"):
        add(empty, alice)
    bob = party(tmp_path, "bob")
    shutil.copy(alice / FIRST_MODEL_FILE, bob)
    with refusal(ParameterError, "alice"):
        add(empty, bob)
    assert contents(empty) == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "veilsum first model"}', "[" * 100_000])
def test_a_file_that_states_nothing_is_refused(empty: Path, tmp_path: Path, text: str) -> None:
    alice = party(tmp_path, "alice")
    (alice / FIRST_MODEL_FILE).write_text(text)
    with refusal(ParameterError, FIRST_MODEL_FILE, "party"):
        add(empty, alice)


def test_signing_names_who_has_stated_nothing(empty: Path, tmp_path: Path) -> None:
    add(empty, party(tmp_path, "alice", OTHER))
    add(empty, party(tmp_path, "bob"))
    with refusal(ParameterError, "bob", "first-model"):
        sign_again(empty, empty / "organiser")
    late = tmp_path / "late.json"
    write_first_model(late, state_first_model(load_identity(tmp_path / "post" / "bob"), OTHER))
    sign_again(empty, empty / "organiser", [late])
    assert begun(empty).electorate == ("alice", "bob")


def test_a_statement_that_is_named_and_not_there_is_refused_and_nothing_is_signed(
    fed: Path, tmp_path: Path
) -> None:
    before = (fed / "roster.json").read_bytes()
    with refusal(ParameterError, "nobody.json", "first-model"):
        sign_again(fed, fed / "organiser", [tmp_path / "nobody.json"])
    assert (fed / "roster.json").read_bytes() == before


def test_the_anchor_stays_when_members_or_settings_change(fed: Path, tmp_path: Path) -> None:
    """An evicted party counts in the electorate, and one that joins does not vote at this position."""
    before = begun(fed)
    sign_again(fed, fed / "organiser")
    assert begun(fed) == before
    evict_party(fed, fed / "organiser", "carol")
    assert begun(fed) == before
    assert "carol" in before.electorate
    add(fed, party(tmp_path, "carol", first_model()))
    assert begun(fed) == before


def test_another_first_model_of_all_begins_another_chain(fed: Path, tmp_path: Path) -> None:
    before = begun(fed)
    save_model(tmp_path / "other.safetensors", OTHER, layout_of(VectorsTask.parse("7")))
    begin_anew(fed, fed / "organiser", tmp_path / "other.safetensors")
    assert begun(fed).chain != before.chain
    assert begun(fed) == first_anchor(begun(fed).chain, hash_model(OTHER), NAMES)


def test_a_party_states_its_first_model_with_the_command(
    empty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alice = party(tmp_path, "alice")
    command = ["keys", "first-model", str(empty), "--key", str(alice)]
    assert cli.main(command) == 2
    assert "pin" in capsys.readouterr().err
    pin_organiser(alice, read_roster(empty / "roster.json").organiser)
    assert cli.main(command) == 0
    stated = read_first_model(alice / FIRST_MODEL_FILE)
    assert stated == state_first_model(load_identity(alice), first_model())
    assert stated.model_hash.hex() in capsys.readouterr().out
