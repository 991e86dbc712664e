"""A login for the broker is enrolled only as the party signed it, since its words stand for the keys alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.invited import CONFIG, answer, contents, invited, rewritten
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker.files import read_logins
from veilsum.roles.broker.logins import LOGIN_FILE, new_login, password_matches, read_login, read_password
from veilsum.roles.broker.signed_login import login_signed_by, sign_login_again
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.enrolment import add_party, create_federation, create_party
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.invitations.json_file import BadFile


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    create_federation(tmp_path / "fed", CONFIG, with_keys=False)
    return tmp_path / "fed"


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    """The key folder of a party that makes its keys by hand."""
    create_party(tmp_path / "alice", "alice", Role.CLIENT)
    return tmp_path / "alice"


def enrolled_line(fed: Path) -> str:
    return read_logins(fed / "broker", load_federation(fed).federation_id)["alice"]


def require_not_enrolled(fed: Path, key_folder: Path, *mentioned: str) -> None:
    before = contents(fed)
    with pytest.raises(BadFile) as refused:
        add_party(fed, fed / "organiser", key_folder, None)
    require_mentions(str(refused.value), str(key_folder / LOGIN_FILE), "alice", *mentioned)
    assert contents(fed) == before


def unsigned(key_folder: Path) -> bytes:
    """The login file as earlier versions wrote it."""
    (key_folder / LOGIN_FILE).write_text(f"{read_login(key_folder)[1]}\n")
    return (key_folder / LOGIN_FILE).read_bytes()


def test_the_login_that_a_party_signed_is_enrolled(fed: Path, alice: Path) -> None:
    add_party(fed, fed / "organiser", alice, None)
    assert password_matches(enrolled_line(fed), read_password(alice))


def test_a_login_that_somebody_puts_beside_the_partys_keys_is_refused(
    fed: Path, alice: Path, tmp_path: Path
) -> None:
    (alice / LOGIN_FILE).write_text(new_login("alice")[1])
    require_not_enrolled(fed, alice, "sign-login")
    create_party(tmp_path / "thief", "alice", Role.CLIENT)
    shutil.copy(tmp_path / "thief" / LOGIN_FILE, alice / LOGIN_FILE)
    require_not_enrolled(fed, alice, "signature")


def test_the_signature_of_another_login_is_refused(fed: Path, alice: Path) -> None:
    line = new_login("alice")[1]
    rewritten(alice / LOGIN_FILE, alice / LOGIN_FILE, lambda one: one.update(login=line))
    require_not_enrolled(fed, alice, "signature")


def test_the_login_of_another_party_is_refused(fed: Path, alice: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    shutil.copy(tmp_path / "bob" / LOGIN_FILE, alice / LOGIN_FILE)
    require_not_enrolled(fed, alice, "bob")


@pytest.mark.parametrize(
    "change",
    [
        {"login": 7},
        {"login": ""},
        {"login": None},
        {"signature": 7},
        {"signature": "AAAA"},
        {"signature": "no base64"},
        {"format_version": 2},
        {"format": "veilsum"},
        {"more": 1},
    ],
)
def test_a_damaged_login_file_is_refused_by_name(fed: Path, alice: Path, change: dict[str, object]) -> None:
    rewritten(alice / LOGIN_FILE, alice / LOGIN_FILE, lambda one: one.update(change))
    before = contents(fed)
    with refusal(BadFile, alice / LOGIN_FILE):
        add_party(fed, fed / "organiser", alice, None)
    assert contents(fed) == before


@pytest.mark.parametrize("extra", ["\n", " ", "\nmallory:$7$"])
def test_a_signed_login_is_one_line_and_nothing_more(alice: Path, extra: str) -> None:
    rewritten(alice / LOGIN_FILE, alice / LOGIN_FILE, lambda one: one.update(login=one["login"] + extra))
    with refusal(BadFile, alice / LOGIN_FILE):
        login_signed_by(load_identity(alice).public, alice / LOGIN_FILE)


def test_an_unsigned_login_of_an_earlier_version_is_refused_until_its_owner_signs_it(
    fed: Path, alice: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare, private = unsigned(alice), load_identity(alice).public
    require_not_enrolled(fed, alice, "earlier", "sign-login")
    assert read_login(alice) == ("alice", bare.decode().strip()), (
        "whoever is enrolled already goes on with it"
    )
    assert cli.main(["keys", "sign-login", str(alice)]) == 0
    require_mentions(capsys.readouterr().out, LOGIN_FILE)
    add_party(fed, fed / "organiser", alice, None)
    assert enrolled_line(fed) == bare.decode().strip()
    assert load_identity(alice).public == private


def test_nobody_signs_the_login_of_another(alice: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    shutil.copy(tmp_path / "bob" / LOGIN_FILE, alice / LOGIN_FILE)
    before = contents(alice)
    with refusal(LocalProtocolError, "alice", "bob"):
        sign_login_again(alice, load_identity(alice))
    assert contents(alice) == before


def test_keys_of_an_invited_party_have_a_signed_login_too(fed: Path, tmp_path: Path) -> None:
    reply = answer(invited(fed), tmp_path / "joined")
    keys = tmp_path / "joined" / "keys" / "alice"
    line = login_signed_by(load_identity(keys).public, keys / LOGIN_FILE)
    assert line == json.loads(reply.read_text())["login"]
