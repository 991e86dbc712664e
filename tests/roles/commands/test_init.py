"""Making a federation: complete, private, never over something else; and changing who belongs to it."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.roles.broker.connect import broker_address
from veilsum.roles.broker.files import read_logins
from veilsum.roles.broker.logins import OBSERVERS
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import (
    add_party,
    create_federation,
    create_party,
    evict_party,
    sign_again,
)
from veilsum.roles.federation.folder import enter_federation, load_federation, require_complete
from veilsum.roles.federation.pins import PIN_FILE, pin_organiser
from veilsum.roles.federation.private_files import PrivateFileError
from veilsum.roles.federation.signed_roster import RosterRefused
from veilsum.roles.learning.datasets import registry
from veilsum.transport.mqtt.topics import Topics

NAMES = ("alice", "bob", "carol")
CONFIG = FederationConfig(name="clinics", scheme="masked", parties=NAMES, task="digits", rounds=3)


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    create_federation(tmp_path / "fed", CONFIG)
    return tmp_path / "fed"


def edit(fed: Path, old: str, new: str) -> None:
    path = fed / "federation.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_writes_a_complete_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fed = tmp_path / "fed"
    command = ["init", str(fed), "--scheme", "ampc", "--parties", "3", "--task", "digits", "--rounds", "3"]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    loaded = load_federation(fed)
    assert loaded.signed.organiser.fingerprint in printed
    assert f"veilsum launch {fed}" in printed
    assert (loaded.config.name, loaded.config.scheme, loaded.config.rounds) == ("fed", "ampc", 3)
    assert loaded.roster.participants == ("p1", "p2", "p3")
    assert all(loaded.roster.identity(name).rsa_public for name in loaded.roster.participants)
    require_complete(loaded)
    for name in ("server", "p1", "p2", "p3"):
        entered, identity = enter_federation(fed / "federation.toml", loaded.key_folder(name))
        assert (identity.name, entered.config) == (name, loaded.config)


def test_what_is_secret_is_closed_to_others(fed: Path) -> None:
    open_files = {
        str(path.relative_to(fed))
        for path in fed.rglob("*")
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077
    }
    assert open_files == {
        "federation.toml",
        "roster.json",
        "broker/mosquitto.conf",
        "broker/ca.pem",
        "broker/server.pem",
        "first-model.safetensors",
        *(f"first-models/{name}.json" for name in NAMES),
        *(f"keys/{name}/first-model.json" for name in NAMES),
    }
    for folder in ("organiser", "keys", "keys/alice", "keys/server", "broker"):
        assert stat.S_IMODE((fed / folder).stat().st_mode) == 0o700


def test_no_secret_is_in_a_file_that_is_shared(fed: Path) -> None:
    shared = b"".join((fed / name).read_bytes() for name in ("federation.toml", "roster.json"))
    for folder in [*(fed / "keys").iterdir(), fed / "organiser"]:
        if (folder / "identity.json").exists():
            fields = json.loads((folder / "identity.json").read_text())
            assert fields["signing_private"].encode() not in shared
        if (folder / "broker-password").exists():
            password = (folder / "broker-password").read_bytes().strip()
            assert password not in shared
            assert password not in (fed / "broker" / "passwords").read_bytes()


def test_a_folder_with_anything_in_it_is_refused_and_left_alone(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(fed)
    assert cli.main(["init", str(fed)]) == 2
    require_mentions(capsys.readouterr().err, fed, "empty")
    assert snapshot(fed) == before
    assert cli.main(["init", str(fed / "federation.toml")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_an_empty_folder_is_as_good_as_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "fed").mkdir()
    create_federation(tmp_path / "fed", CONFIG)
    load_federation(tmp_path / "fed")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--scheme", "nope"], "scheme nope"),
        (["--parties", "2"], "min_parties 3 2"),
        (["--parties", "a,b,observer"], "observer organiser"),
        (["--parties", "a,b,observer-7"], "observer-7"),
        (["--task", "chess"], "task chess"),
    ],
)
def test_a_federation_that_cannot_work_leaves_nothing_behind(
    flags: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(tmp_path / "fed"), *flags]) == 2
    require_mentions(capsys.readouterr().err, *says.split())
    assert not (tmp_path / "fed").exists()


def test_local_settings_may_be_edited_and_agreed_ones_only_with_a_signature(fed: Path) -> None:
    edit(fed, "rounds = 3", "rounds = 30")
    edit(fed, 'host = "localhost"', 'host = "broker.example.org"')
    assert load_federation(fed).config.rounds == 30
    edit(fed, "clip = 8.0", "clip = 4.0")
    for action in (load_federation, lambda path: enter_federation(path, fed / "keys" / "alice")):
        with pytest.raises(RosterRefused) as caught:
            action(fed)
        assert caught.value.reason is AbortReason.WRONG_CONFIG
        assert caught.value.path == fed / "federation.toml"
        require_mentions(str(caught.value), "clip", 4.0, 8.0)
    assert sign_again(fed, fed / "organiser").version == 2
    assert load_federation(fed).config.clip == 4.0


def test_an_evicted_party_is_refused_by_name_and_loses_its_login(fed: Path) -> None:
    old_roster = (fed / "roster.json").read_bytes()
    evict_party(fed, fed / "organiser", "bob")
    loaded, _ = enter_federation(fed, fed / "keys" / "alice")
    assert loaded.roster.participants == ("alice", "carol")
    with refusal(RosterRefused, "bob", "evicted", 2):
        enter_federation(fed, fed / "keys" / "bob")
    logins = read_logins(fed / "broker", loaded.federation_id)
    assert set(logins) == {"alice", "carol", "server", *OBSERVERS}
    assert "-bob" not in (fed / "broker" / "acl").read_text() + (fed / "broker" / "passwords").read_text()
    (fed / "roster.json").write_bytes(old_roster)
    with refusal(RosterRefused, 1, 2, "accepted"):
        enter_federation(fed, fed / "keys" / "alice")
    with refusal(RosterRefused, "zoe", reason=AbortReason.UNKNOWN_PARTY):
        evict_party(fed, fed / "organiser", "zoe")


def test_an_evicted_party_comes_back_with_new_keys_only(fed: Path, tmp_path: Path) -> None:
    evict_party(fed, fed / "organiser", "bob")
    create_party(tmp_path / "new-bob", "bob", Role.CLIENT)
    signed = add_party(fed, fed / "organiser", tmp_path / "new-bob", None)
    assert (signed.version, dict(signed.evicted)) == (3, {})
    with refusal(RosterRefused, "bob", "listed", "enrolled", reason=AbortReason.BAD_KEY):
        enter_federation(fed, fed / "keys" / "bob")


@pytest.mark.parametrize("split", ["own", "iid"])
def test_what_to_do_next_is_a_launch_that_is_not_refused_for_its_data(
    tmp_path: Path, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fed = tmp_path / "fed"
    assert cli.main(["init", str(fed), "--task", "digits", "--parties", "ann,bob,eve", "--split", split]) == 0
    following = (
        capsys.readouterr().out.partition("next: veilsum")[2].splitlines()[0].replace("FOLDER", str(tmp_path))
    )
    folders = load_federation(fed).data_folders(*following.split()[3:])
    folders.require_fitting(("ann", "bob", "eve"), split)


def test_a_model_that_is_not_there_is_refused_without_advice_about_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(tmp_path / "fed"), "--task", "digits", "--model", "nomodel"]) == 2
    said = capsys.readouterr().err
    require_mentions(said, "nomodel", "lenet5")
    assert "--data" not in said


def test_parties_make_their_own_keys_and_are_enrolled_by_their_public_halves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fed, theirs = tmp_path / "fed", tmp_path / "theirs"
    flags = ["--scheme", "masked", "--parties", "alice,bob,carol", "--no-keys", "--max-weight", "1797"]
    assert cli.main(["init", str(fed), *flags]) == 0
    with refusal(ParameterError, "server", "enrolled"):
        require_complete(load_federation(fed))
    for name, role in [("server", "server"), *((name, "client") for name in NAMES)]:
        assert cli.main(["keys", "new", name, "--role", role, "--out", str(theirs / name)]) == 0
        sent = tmp_path / "post" / name
        sent.mkdir(parents=True)
        for file in ("identity.pub.json", "broker-login"):
            (sent / file).write_bytes((theirs / name / file).read_bytes())
        assert cli.main(["roster", "add", str(fed), str(sent / "identity.pub.json")]) == 0
    with refusal(ParameterError, "first-model", "sign"):
        require_complete(load_federation(fed))
    stated = []
    for name in NAMES:
        pin_organiser(theirs / name, load_federation(fed).signed.organiser)
        assert cli.main(["keys", "first-model", str(fed), "--key", str(theirs / name)]) == 0
        (theirs / name / PIN_FILE).unlink()
        stated += ["--first-model", str(theirs / name / "first-model.json")]
    assert cli.main(["roster", "sign", str(fed), *stated]) == 0
    loaded = load_federation(fed)
    require_complete(loaded)
    assert loaded.signed.version == 6
    with refusal(PrivateFileError, "organiser", "trusted", path=theirs / "alice" / PIN_FILE):
        enter_federation(fed, theirs / "alice")
    capsys.readouterr()
    pin = ["roster", "pin", str(fed), "--key", str(theirs / "alice"), "--fingerprint"]
    assert cli.main([*pin, "0000-" * 7 + "0000"]) == 2
    require_mentions(capsys.readouterr().err, loaded.signed.organiser.fingerprint)
    assert cli.main([*pin, loaded.signed.organiser.fingerprint]) == 0
    entered, identity = enter_federation(fed, theirs / "alice")
    address = broker_address(entered, "alice", theirs / "alice")
    login = Topics(loaded.federation_id).login("alice")
    assert (identity.name, address.username, address.port) == ("alice", login, 8883)
    assert address.password is not None and address.password not in repr(address)


def test_what_does_not_fit_the_federation_is_not_enrolled(fed: Path, tmp_path: Path) -> None:
    before = snapshot(fed)
    for name in ("alice", "dora"):
        create_party(tmp_path / name, name, Role.CLIENT)
    with refusal(RosterRefused, "alice", "evict"):
        add_party(fed, fed / "organiser", tmp_path / "alice", None)
    with refusal(ParameterError, "dora", "federation.toml"):
        add_party(fed, fed / "organiser", tmp_path / "dora", None)
    assert snapshot(fed) == before


def test_a_role_that_the_scheme_does_not_know_is_not_enrolled(tmp_path: Path) -> None:
    create_federation(tmp_path / "fed", FederationConfig(parties=NAMES, max_weight=9), with_keys=False)
    create_party(tmp_path / "alice", "alice", Role.CLIENT)
    with refusal(ParameterError, "alice", "client", "ampc", "peer"):
        add_party(tmp_path / "fed", tmp_path / "fed" / "organiser", tmp_path / "alice", None)


def test_the_login_of_another_party_is_not_enrolled(tmp_path: Path) -> None:
    create_federation(tmp_path / "fed", replace(CONFIG, max_weight=9), with_keys=False)
    create_party(tmp_path / "alice", "alice", Role.CLIENT)
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    add = ["roster", "add", str(tmp_path / "fed"), str(tmp_path / "alice")]
    assert cli.main([*add, "--login", str(tmp_path / "bob" / "broker-login")]) == 2
    assert load_federation(tmp_path / "fed").signed.version == 1


def test_another_organiser_cannot_sign_this_roster(fed: Path, tmp_path: Path) -> None:
    assert (
        cli.main(["keys", "new", "usurper", "--role", "organiser", "--out", str(tmp_path / "usurper")]) == 0
    )
    for folder in (tmp_path / "usurper", fed / "keys" / "server"):
        with refusal(RosterRefused, "<organiser", folder, reason=AbortReason.WRONG_ROSTER):
            sign_again(fed, folder)


def test_the_server_is_called_server_and_nobody_else_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, role in (("server", "client"), ("alice", "server")):
        assert cli.main(["keys", "new", name, "--role", role, "--out", str(tmp_path / name)]) == 2
        require_mentions(capsys.readouterr().err, "'server'")
    assert cli.main(["keys", "new", "Alice"]) == 2
    require_mentions(capsys.readouterr().err, "'Alice'", "name")


def test_show_lists_fingerprints_and_what_was_not_signed(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evict_party(fed, fed / "organiser", "bob")
    edit(fed, "clip = 8.0", "clip = 4.0")
    assert cli.main(["roster", "show", str(fed), "--json", "-"]) == 0
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert (figures["version"], figures["evicted"]) == (2, {"bob": 2})
    assert set(figures["identities"]) == {"alice", "carol", "server"}
    assert figures["identities"]["alice"] in printed.err
    require_mentions(printed.err, "signed", "clip", 4.0, 8.0)


def test_changing_the_roster_says_what_to_copy_where(fed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["roster", "evict", str(fed), "bob"]) == 0
    said = capsys.readouterr().out
    assert f"copy {fed / 'roster.json'} to every machine" in said and "veilsum host" in said
    assert cli.main(["roster", "sign", str(fed)]) == 0
    assert "signed: roster version 3" in capsys.readouterr().out


def test_a_folder_that_exists_is_refused_without_advice_to_destroy_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert cli.main(["init", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    require_mentions(said, tmp_path, "empty")
    assert "rm -" not in said


def test_too_few_parties_are_not_told_to_weaken_the_limit_that_protects_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(tmp_path / "fed"), "--scheme", "masked", "--parties", "2"]) == 2
    said = capsys.readouterr().err
    assert "min_parties 3" in said and "add parties" in said
    assert "lower" not in said


@pytest.mark.parametrize("task", ["digits", "clinics.ecg:task", "./nowhere.py:study"])
def test_without_keys_nothing_of_the_task_is_loaded_and_the_weight_limit_is_asked_for(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nowhere.py").write_text("raise RuntimeError('somebody ran me')\n")
    command = ["init", "fed", "--parties", "alice,bob,carol", "--task", task, "--split", "own", "--no-keys"]
    assert cli.main(command) == 2
    require_mentions(capsys.readouterr().err, "--max-weight")
    assert not (tmp_path / "fed").exists()
    with monkeypatch.context() as watched:
        watched.setattr(registry, "load_task", None)
        assert cli.main([*command, "--max-weight", "500"]) == 0
    assert load_federation(tmp_path / "fed").config.max_weight == 500
    assert cli.main(["init", "again", *command[2:], "--weights", "equal"]) == 0


def test_a_first_model_is_not_taken_from_an_office_without_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "init",
        str(tmp_path / "fed"),
        "--task",
        "vectors:7",
        "--no-keys",
        "--init",
        "model.safetensors",
    ]
    assert cli.main(command) == 2
    require_mentions(capsys.readouterr().err, "--init", "first-model")
    assert not (tmp_path / "fed").exists()
