"""A server begins with the model that the parties stated, makes none, and is given it as a file or not at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.anchoring import checkpoint_anchor
from veilsum.roles.federation.beginning import MODEL_FILE, servers_first_model, write_model
from veilsum.roles.federation.enrolment import (
    add_party,
    create_federation,
    create_party,
    sign_again,
    sign_checkpoint,
)
from veilsum.roles.federation.first_models import FIRST_MODEL_FILE, state_first_model, write_first_model
from veilsum.roles.federation.folder import enter_federation, load_federation
from veilsum.roles.federation.pins import pin_organiser
from veilsum.roles.federation.signed_roster import read_roster
from veilsum.roles.learning import first_model
from veilsum.roles.process.context import RoleOptions, enter_role, first_length, initial_model, starting_notes

NAMES = ("alice", "bob", "carol")
MODEL = np.arange(7, dtype=np.float32)


def office(tmp_path: Path, scheme: str, task: str = "./study.py:task") -> Path:
    """A federation whose task is code that nobody here can run, with a server that has its keys."""
    (tmp_path / "study.py").write_text("raise RuntimeError('there is nothing of the task here')\n")
    fed = tmp_path / "fed"
    config = FederationConfig(
        scheme=scheme, parties=NAMES, task=task, max_weight=9, split="own", broker_tls=False
    )
    create_federation(fed, config, with_keys=False)
    create_party(fed / "keys" / "server", "server", Role.SERVER)
    add_party(fed, fed / "organiser", fed / "keys" / "server", None)
    pin_organiser(fed / "keys" / "server", read_roster(fed / "roster.json").organiser)
    return fed


def enrol(fed: Path, name: str, role: Role, *, with_model: bool) -> Path:
    folder = fed.parent / "post" / name
    identity, _ = create_party(folder, name, role)
    write_first_model(folder / FIRST_MODEL_FILE, state_first_model(identity, MODEL))
    if with_model:
        write_model(folder / MODEL_FILE, MODEL)
    add_party(fed, fed / "organiser", folder, None)
    return folder


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No process may make a model here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_model, "ask_for_beginning", None)
    monkeypatch.setattr(first_model, "make_beginning", None)


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_a_server_that_holds_no_model_knows_its_length_from_the_roster(scheme: str, tmp_path: Path) -> None:
    fed = office(tmp_path, scheme)
    for name in NAMES:
        enrol(fed, name, Role.PEER, with_model=True)
    context = enter_role(Role.SERVER, RoleOptions(fed, "server"))
    (fed / MODEL_FILE).unlink()
    assert initial_model(context, None) is None
    assert first_length(context, None) == len(MODEL)


@pytest.mark.parametrize("scheme", ["plain", "masked", "perturbed", "bilateral"])
def test_a_server_that_holds_the_model_has_it_from_the_enrolment_of_one_party(
    scheme: str, tmp_path: Path
) -> None:
    fed = office(tmp_path, scheme, "digits")
    for name in NAMES:
        enrol(fed, name, Role.CLIENT, with_model=name == "bob")
    context = enter_role(Role.SERVER, RoleOptions(fed, "server"))
    begun = initial_model(context, None)
    assert begun is not None and begun.tobytes() == MODEL.tobytes()
    (fed / MODEL_FILE).unlink()
    if scheme == "masked":
        assert initial_model(context, None) is None, "the parties give it the one that is signed"
        assert first_length(context, None) == len(MODEL)
        return
    with refusal(ParameterError, MODEL_FILE, "party", "--init"):
        initial_model(context, None)


def test_a_model_that_is_not_the_stated_one_is_not_enrolled(tmp_path: Path) -> None:
    fed = office(tmp_path, "plain")
    folder = tmp_path / "alice"
    identity, _ = create_party(folder, "alice", Role.CLIENT)
    write_first_model(folder / FIRST_MODEL_FILE, state_first_model(identity, MODEL))
    write_model(folder / MODEL_FILE, MODEL + 1)
    before = (fed / "roster.json").read_bytes()
    with refusal(ParameterError, MODEL_FILE, "alice"):
        add_party(fed, fed / "organiser", folder, None)
    assert (fed / "roster.json").read_bytes() == before
    assert not (fed / MODEL_FILE).exists()


def test_who_comes_after_a_checkpoint_with_another_first_model_leaves_that_of_the_server_alone(
    tmp_path: Path,
) -> None:
    fed = office(tmp_path, "masked", "vectors:5")
    for name in NAMES[:2]:
        enrol(fed, name, Role.CLIENT, with_model=True)
    sign_again(fed, fed / "organiser")
    anchor = load_federation(fed).roster.anchor
    assert anchor is not None
    sign_checkpoint(fed, fed / "organiser", checkpoint_anchor(anchor, 5, bytes([1]) * 32, NAMES[:2], 2))
    folder = tmp_path / "carol"
    identity, _ = create_party(folder, "carol", Role.CLIENT)
    write_first_model(folder / FIRST_MODEL_FILE, state_first_model(identity, MODEL + 1))
    write_model(folder / MODEL_FILE, MODEL + 1)
    add_party(fed, fed / "organiser", folder, None)
    loaded = load_federation(fed)
    assert "carol" in loaded.roster.participants
    assert servers_first_model(fed, loaded.config, loaded.signed).tobytes() == MODEL.tobytes()


def spoil(file: Path, how: str) -> None:
    if how == "another":
        write_model(file, MODEL + 1)
    else:
        file.write_bytes(file.read_bytes()[:20])


@pytest.mark.parametrize("how", ["another", "truncated"])
@pytest.mark.parametrize("scheme", ["masked", "plain"])
def test_a_first_model_that_is_not_the_signed_one_is_as_none_where_parties_vouch_for_theirs(
    tmp_path: Path, scheme: str, how: str
) -> None:
    """And refused where the server alone has the model: then nothing is said of what the parties hold."""
    fed = office(tmp_path, scheme)
    for name in NAMES:
        enrol(fed, name, Role.CLIENT, with_model=True)
    spoil(fed / MODEL_FILE, how)
    context = enter_role(Role.SERVER, RoleOptions(fed, "server"))
    if scheme == "masked":
        assert initial_model(context, None) is None
        require_mentions(" ".join(starting_notes(context, None, None)), fed / MODEL_FILE, "parties")
    else:
        with refusal(ParameterError, fed / MODEL_FILE):
            initial_model(context, None)
        assert not list(starting_notes(context, None, None))


@pytest.mark.parametrize("how", ["another", "truncated"])
@pytest.mark.parametrize("scheme", ["masked", "ampc", "mpc"])
def test_a_server_that_needs_no_first_model_does_not_read_it(tmp_path: Path, scheme: str, how: str) -> None:
    """A scheme that keeps models from it, or a checkpoint from which it goes on."""
    fed = office(tmp_path, scheme, "vectors:7")
    for name in NAMES:
        enrol(fed, name, Role.CLIENT if scheme == "masked" else Role.PEER, with_model=True)
    write_model(fed / MODEL_FILE, MODEL)
    spoil(fed / MODEL_FILE, how)
    context = enter_role(Role.SERVER, RoleOptions(fed, "server"))
    held = MODEL if scheme == "masked" else initial_model(context, None)
    assert not list(starting_notes(context, None, held))


def test_parties_without_a_chain_that_begin_with_different_models_are_refused_by_name(tmp_path: Path) -> None:
    fed = office(tmp_path, "plain")
    enrol(fed, "alice", Role.CLIENT, with_model=True)
    folder = tmp_path / "bob"
    identity, _ = create_party(folder, "bob", Role.CLIENT)
    write_first_model(folder / FIRST_MODEL_FILE, state_first_model(identity, MODEL + 1))
    with refusal(ParameterError, "alice", "bob", "different"):
        add_party(fed, fed / "organiser", folder, None)


def test_a_server_is_told_when_nobody_stated_a_first_model(tmp_path: Path) -> None:
    fed = office(tmp_path, "plain")
    folder = tmp_path / "alice"
    create_party(folder, "alice", Role.CLIENT)
    add_party(fed, fed / "organiser", folder, None)
    context = enter_role(Role.SERVER, RoleOptions(fed, "server"))
    with refusal(ParameterError, "roster.json", "first-model"):
        initial_model(context, None)
    write_model(tmp_path / "mine.safetensors", MODEL)
    given = replace(context, options=replace(context.options, init=tmp_path / "mine.safetensors"))
    assert first_length(given, initial_model(given, None)) == len(MODEL)


def test_a_changed_seed_takes_new_statements_and_they_are_made_where_all_keys_are(tmp_path: Path) -> None:
    fed = tmp_path / "fed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_model, "ask_for_beginning", lambda config, *_: _Begun(MODEL + config.seed))
        create_federation(fed, FederationConfig(scheme="plain", parties=NAMES, task="digits", max_weight=9))
        text = (fed / "federation.toml").read_text()
        (fed / "federation.toml").write_text(text.replace("seed = 0", "seed = 5"))
        shutil.move(fed / "keys" / "bob", tmp_path / "bob")
        with refusal(ParameterError, "seed", "alice", "first-model"):
            sign_again(fed, fed / "organiser")
        shutil.move(tmp_path / "bob", fed / "keys" / "bob")
        sign_again(fed, fed / "organiser")
    loaded, _ = enter_federation(fed, fed / "keys" / "server")
    assert servers_first_model(fed, loaded.config, loaded.signed).tobytes() == (MODEL + 5).tobytes()


def test_a_first_model_of_other_settings_is_refused_by_the_server(tmp_path: Path) -> None:
    fed = office(tmp_path, "plain")
    enrol(fed, "alice", Role.CLIENT, with_model=True)
    text = (fed / "federation.toml").read_text()
    (fed / "federation.toml").write_text(text.replace("seed = 0", "seed = 5"))
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    add_party(fed, fed / "organiser", tmp_path / "bob", None)
    loaded = load_federation(fed)
    with refusal(ParameterError, "seed", "first-model"):
        servers_first_model(fed, loaded.config, loaded.signed)


def test_a_party_of_any_scheme_states_its_first_model_and_says_what_to_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_model, "ask_for_beginning", lambda *_: _Begun(MODEL))
    for scheme, role, sends in (("plain", Role.CLIENT, True), ("ampc", Role.PEER, False)):
        (tmp_path / scheme).mkdir()
        fed = office(tmp_path / scheme, scheme, "digits")
        key = tmp_path / scheme / "alice"
        create_party(key, "alice", role)
        pin_organiser(key, read_roster(fed / "roster.json").organiser)
        assert cli.main(["keys", "first-model", str(fed), "--key", str(key)]) == 0
        assert (MODEL_FILE in capsys.readouterr().out) is sends
        add_party(fed, fed / "organiser", key, None)
        agreed = read_roster(fed / "roster.json").first_model
        assert agreed is not None and agreed.length == len(MODEL)


class _Begun:
    def __init__(self, model: np.ndarray) -> None:
        self.model = model
