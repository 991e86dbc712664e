"""The signed roster and the pins: only the organiser's word counts, and only its newest."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation.first_models import AgreedModel
from veilsum.roles.federation.pins import PIN_FILE, accept_roster, pin_organiser, read_pin
from veilsum.roles.federation.private_files import PrivateFileError
from veilsum.roles.federation.signed_roster import (
    RosterRefused,
    SignedRoster,
    load_roster,
    read_roster,
    sign_roster,
    write_roster,
)
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.run.keypool import simulation_rsa_key

AGREED = {"name": "fed", "clip": 8.0, "parties": ["alice", "bob"], "options": {}}


def identity(name: str, role: Role, rsa_index: int | None = None) -> Identity:
    rsa = None if rsa_index is None else simulation_rsa_key(rsa_index)
    return Identity(PartyId(name), role, SigningKey.generate(SeededEntropy(f"{name}{role}".encode())), rsa)


ORGANISER = identity("organiser", Role.ORGANISER)
SERVER = identity("server", Role.SERVER)
ALICE = identity("alice", Role.CLIENT)
BOB = identity("bob", Role.CLIENT)
ANCHOR = Anchor(bytes(range(32)), 4, bytes(range(32, 64)), (PartyId("alice"), PartyId("bob")))
EVERYBODY = (SERVER.public, ALICE.public, BOB.public)


def roster(version: int = 1, identities: tuple[PublicIdentity, ...] = EVERYBODY, **more: Any) -> SignedRoster:
    return sign_roster(ORGANISER, version, identities, AGREED, **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_roster(tmp_path / "roster.json", roster())
    return tmp_path / "roster.json"


@pytest.fixture
def key_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "alice"
    folder.mkdir(mode=0o700)
    pin_organiser(folder, ORGANISER.public)
    return folder


def refused(action: Callable[[], object], path: Path, reason: AbortReason) -> str:
    with pytest.raises(RosterRefused) as caught:
        action()
    assert (caught.value.path, caught.value.reason) == (path, reason)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_roster_reads_back_as_it_was_signed(path: Path) -> None:
    signed = read_roster(path)
    assert signed == roster()
    assert signed.roster.identity("alice") == ALICE.public
    assert signed.agreed == AGREED
    assert load_roster(path, ORGANISER.signing.public) == signed


def test_the_anchor_reads_back_as_it_was_signed_and_no_part_of_it_can_be_changed(path: Path) -> None:
    write_roster(path, roster(anchor=ANCHOR))
    assert read_roster(path).roster.anchor == ANCHOR
    document = json.loads(path.read_text())
    changed: list[dict[str, Any] | None] = [
        {**document["anchor"], **change}
        for change in (
            {"chain": "00" * 32},
            {"position": 5},
            {"state_hash": "00" * 32},
            {"electorate": ["alice"]},
        )
    ]
    for other in (*changed, None):
        path.write_text(json.dumps({**document, "anchor": other}))
        refused(lambda: read_roster(path), path, AbortReason.BAD_SIGNATURE)


FIRST = AgreedModel(7, bytes(range(32)), bytes(32))


def test_the_first_model_reads_back_as_it_was_signed_and_no_part_of_it_can_be_changed(path: Path) -> None:
    write_roster(path, roster(first_model=FIRST))
    assert read_roster(path).first_model == FIRST
    document = json.loads(path.read_text())
    for change in ({"length": 8}, {"model_hash": "00" * 32}, {"made_for": "01" * 32}, None):
        other = None if change is None else {**document["first_model"], **change}
        path.write_text(json.dumps({**document, "first_model": other}))
        refused(lambda: read_roster(path), path, AbortReason.BAD_SIGNATURE)


@pytest.mark.parametrize(
    "change",
    [{"length": 0}, {"length": "7"}, {"length": 2**48}, {"model_hash": "00"}, {"made_for": 7}, {"more": 1}],
)
def test_a_first_model_of_another_form_is_refused(path: Path, change: dict[str, Any]) -> None:
    write_roster(path, roster(first_model=FIRST))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "first_model": {**document["first_model"], **change}}))
    refused(lambda: read_roster(path), path, AbortReason.BAD_ENCODING)


@pytest.mark.parametrize(
    "change",
    [
        {"chain": "00"},
        {"chain": 7},
        {"state_hash": "not hexadecimal"},
        {"position": -1},
        {"position": 2**64},
        {"position": "4"},
        {"electorate": ["bob", "alice"]},
        {"electorate": ["server"]},
        {"electorate": [3]},
        {"electorate": 3},
        {"more": 1},
    ],
)
def test_an_anchor_of_another_form_is_refused(path: Path, change: dict[str, Any]) -> None:
    write_roster(path, roster(anchor=ANCHOR))
    document = json.loads(path.read_text())
    document["anchor"] |= change
    path.write_text(json.dumps(document))
    refused(lambda: read_roster(path), path, AbortReason.BAD_ENCODING)


def test_anybody_may_read_the_roster_and_a_new_one_takes_its_place_whole(path: Path) -> None:
    write_roster(path, roster(2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert read_roster(path).version == 2
    assert [one.name for one in path.parent.iterdir()] == ["roster.json"]


def _replace_key(document: dict[str, Any]) -> None:
    document["identities"][0]["verify_key"] = base64.b64encode(BOB.signing.public[::-1]).decode()


def _drop_party(document: dict[str, Any]) -> None:
    document["identities"].pop()


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(version=2),
        lambda document: document["agreed"].update(clip=80.0),
        lambda document: document["agreed"].update(extra=1),
        lambda document: document["evicted"].update(alice=1),
        lambda document: document["identities"][0].update(role="peer"),
        lambda document: document["identities"][0].update(name="mallory"),
        lambda document: document["organiser"].update(name="another"),
        lambda document: document.update(signature=base64.b64encode(bytes(64)).decode()),
        _replace_key,
        _drop_party,
    ],
)
def test_a_roster_changed_after_signing_is_refused(
    path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(RosterRefused) as caught:
        read_roster(path)
    assert caught.value.reason in (AbortReason.BAD_SIGNATURE, AbortReason.BAD_KEY)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "line column"),
        (b"[]", "format"),
        (b'{"format": "veilsum roster", "format_version": 9}', "version 9"),
        (b'{"format": "veilsum roster", "format_version": 3}', "veilsum init --no-keys"),
        (b'{"format": "veilsum roster", "format_version": 4}', "fields"),
        (b'{"format": "a", "format": "veilsum roster"}', "key twice"),
        (b"[" * 100_000, "recursion"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_file_that_is_no_roster_is_refused_with_what_is_wrong(
    path: Path, content: bytes, says: str
) -> None:
    path.write_bytes(content)
    require_mentions(refused(lambda: read_roster(path), path, AbortReason.BAD_ENCODING), *says.split())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", True),
        ("version", 0),
        ("version", "1"),
        ("identities", [{}]),
        ("identities", {}),
        ("evicted", []),
        ("agreed", 3),
        ("signature", "not base64!"),
        ("signature", None),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(path: Path, field: str, value: object) -> None:
    document = {**json.loads(path.read_text()), field: value}
    path.write_text(json.dumps(document))
    with pytest.raises(RosterRefused):
        read_roster(path)


def test_a_missing_roster_is_refused_with_a_remedy(tmp_path: Path) -> None:
    missing = tmp_path / "roster.json"
    with refusal(ParameterError, missing, "organiser"):
        read_roster(missing)


def test_a_roster_of_another_organiser_is_refused(path: Path) -> None:
    stranger = SigningKey.generate(SeededEntropy(9)).public
    text = refused(lambda: load_roster(path, stranger), path, AbortReason.WRONG_ROSTER)
    assert ORGANISER.fingerprint in text


@pytest.mark.parametrize("signer", [SERVER, ALICE])
def test_only_an_organiser_signs_rosters(signer: Identity) -> None:
    with refusal(LocalProtocolError, signer.name, str(signer.role), "organiser", "signs"):
        sign_roster(signer, 1, EVERYBODY, AGREED)


def test_the_organiser_is_no_party() -> None:
    with refusal(LocalProtocolError, ORGANISER.name, "organiser's", "role", "party"):
        roster(identities=(ORGANISER.public,))
    perturbed = PublicIdentity(PartyId("carol"), Role.CLIENT, ORGANISER.signing.public)
    with refusal(LocalProtocolError, "carol", "organiser's", "key", "party"):
        roster(identities=(*EVERYBODY, perturbed))


def test_two_parties_with_one_key_are_refused() -> None:
    twin = PublicIdentity(PartyId("carol"), Role.CLIENT, ALICE.signing.public)
    with refusal(ParameterError, "alice", "carol"):
        roster(identities=(*EVERYBODY, twin))


def test_keys_of_the_simulation_pool_are_neither_signed_nor_accepted(path: Path) -> None:
    toy = identity("carol", Role.PEER, rsa_index=0).public
    with refusal(Rejection, "carol", reason=AbortReason.BAD_KEY):
        roster(identities=(*EVERYBODY, toy))
    document = json.loads(path.read_text())
    assert toy.rsa_public is not None
    document["identities"][0]["rsa_public"] = base64.b64encode(toy.rsa_public).decode()
    path.write_text(json.dumps(document))
    with pytest.raises(RosterRefused):
        read_roster(path)


def test_the_enrolled_keys_are_admitted_and_no_others(path: Path) -> None:
    signed = roster(2, (SERVER.public, ALICE.public), evicted={"bob": 2})
    signed.require_enrolled(path, ALICE.public)
    stranger = identity("carol", Role.CLIENT).public
    new_keys = PublicIdentity(PartyId("alice"), Role.CLIENT, stranger.verify_key)
    for wrong, reason, names in (
        (BOB.public, AbortReason.UNKNOWN_PARTY, ("bob", "evicted", 2)),
        (stranger, AbortReason.UNKNOWN_PARTY, ("carol", 2)),
        (new_keys, AbortReason.BAD_KEY, ("alice", "enrolled")),
    ):
        require_mentions(refused(partial(signed.require_enrolled, path, wrong), path, reason), *names)


def test_a_party_accepts_newer_rosters_and_never_an_older_one_again(path: Path, key_folder: Path) -> None:
    accept_roster(path, key_folder)
    write_roster(path, roster(3))
    assert accept_roster(path, key_folder).version == 3
    assert accept_roster(path, key_folder).version == 3
    write_roster(path, roster(2))
    text = refused(lambda: accept_roster(path, key_folder), path, AbortReason.WRONG_ROSTER)
    require_mentions(text, "version", 2, 3)
    assert read_pin(key_folder).version == 3


def test_two_rosters_under_one_version_are_refused(path: Path, key_folder: Path) -> None:
    accept_roster(path, key_folder)
    write_roster(path, roster(1, (SERVER.public, ALICE.public)))
    refused(lambda: accept_roster(path, key_folder), path, AbortReason.EQUIVOCATION)


def test_a_roster_of_an_organiser_who_is_not_pinned_leaves_the_pin_alone(
    path: Path, key_folder: Path
) -> None:
    before = (key_folder / PIN_FILE).read_bytes()
    usurper = Identity(PartyId("organiser"), Role.ORGANISER, SigningKey.generate(SeededEntropy(3)))
    write_roster(path, sign_roster(usurper, 7, EVERYBODY, AGREED))
    refused(lambda: accept_roster(path, key_folder), path, AbortReason.WRONG_ROSTER)
    assert (key_folder / PIN_FILE).read_bytes() == before
    with pytest.raises(PrivateFileError, match="pins another organiser"):
        pin_organiser(key_folder, usurper.public)
    pin_organiser(key_folder, ORGANISER.public)


def test_a_pin_is_private_and_damage_to_it_is_noticed(path: Path, key_folder: Path) -> None:
    pin = key_folder / PIN_FILE
    assert stat.S_IMODE(pin.stat().st_mode) == 0o600
    pin.chmod(0o644)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        accept_roster(path, key_folder)
    pin.chmod(0o600)
    for content in (b"", b"{}", b'{"format": "veilsum roster pin", "format_version": 2}', b"[]"):
        pin.write_bytes(content)
        with pytest.raises(PrivateFileError, match="is corrupt"):
            accept_roster(path, key_folder)
    pin.unlink()
    with refusal(PrivateFileError, "organiser", "trusted", "fingerprint"):
        accept_roster(path, key_folder)


def test_federations_are_kept_apart_by_organiser_and_name() -> None:
    other_name = sign_roster(ORGANISER, 1, EVERYBODY, {**AGREED, "name": "other"})
    other_organiser = Identity(PartyId("organiser"), Role.ORGANISER, SigningKey.generate(SeededEntropy(3)))
    other = sign_roster(other_organiser, 1, EVERYBODY, AGREED)
    assert len({one.federation_id for one in (roster(), other_name, other)}) == 3
    assert roster(2).federation_id == roster().federation_id
