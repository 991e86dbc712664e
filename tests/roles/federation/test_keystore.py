"""Key files: private, complete or absent, never overwritten, and refused with a remedy when damaged."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.sealing import RsaPrivateKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey, verify_signature
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation import keystore
from veilsum.roles.federation.keystore import (
    PRIVATE_FILE,
    PUBLIC_FILE,
    create_identity,
    load_identity,
    read_public_identity,
)
from veilsum.roles.federation.private_files import PrivateFileError, create_private_file, replace_private_file
from veilsum.roles.process.entropy import system_entropy

VECTORS = Path(__file__).parents[3] / "specs" / "vectors" / "v8"
DIGEST = bytes(range(32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a client's identity, which has no RSA key and is therefore quick to make."""
    create_identity(tmp_path / "alice", "alice", "client", with_rsa=False)
    return tmp_path / "alice"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def refused(action: Callable[[], object], path: Path) -> PrivateFileError:
    with pytest.raises(PrivateFileError) as caught:
        action()
    assert caught.value.path == path
    assert str(path) in str(caught.value) and caught.value.remedy in str(caught.value)
    return caught.value


def test_stored_identity_loads_as_it_was_made(tmp_path: Path) -> None:
    """Signing key, RSA key, name and role survive the disk."""
    made = create_identity(tmp_path / "keys", "alice", "peer", with_rsa=True)
    loaded = load_identity(tmp_path / "keys")
    assert made.rsa is not None and loaded.rsa is not None
    assert loaded.public == made.public == read_public_identity(tmp_path / "keys" / PUBLIC_FILE)
    assert loaded.rsa.der == made.rsa.der
    assert (loaded.name, loaded.role) == ("alice", Role.PEER)
    verify_signature(made.signing.public, "roster", DIGEST, loaded.signing.sign("roster", DIGEST))


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """Files have mode 0600 and the folder 0700 even with a umask of zero, and no temporary file stays."""
    before = os.umask(0)
    try:
        create_identity(tmp_path / "keys", "alice", "client", with_rsa=False)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()}
    assert modes == {PRIVATE_FILE: 0o600, PUBLIC_FILE: 0o600}
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_public_file_contains_nothing_private(folder: Path) -> None:
    private = json.loads((folder / PRIVATE_FILE).read_text())["signing_private"]
    assert private not in (folder / PUBLIC_FILE).read_text()


@pytest.mark.parametrize("kept", [PRIVATE_FILE, PUBLIC_FILE])
def test_existing_identity_is_never_overwritten(folder: Path, kept: str) -> None:
    """One existing file is enough to refuse, and nothing in the folder changes."""
    for name in {PRIVATE_FILE, PUBLIC_FILE} - {kept}:
        (folder / name).unlink()
    before = contents(folder)
    error = refused(lambda: create_identity(folder, "bob", "client", with_rsa=False), folder / kept)
    assert "not overwritten" in error.problem and "another folder" in error.remedy
    assert contents(folder) == before


def test_losing_a_race_overwrites_nothing(tmp_path: Path) -> None:
    """If the name is taken after the check, the link fails: the winner's file stays and no temporary one."""
    path = tmp_path / "keys" / "file"
    create_private_file(path, b"winner")
    refused(lambda: create_private_file(path, b"loser"), path)
    assert contents(tmp_path / "keys") == {"file": b"winner"}


@pytest.mark.parametrize("write", [create_private_file, replace_private_file])
def test_failed_write_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    """A full disk leaves neither a half-written file nor a temporary one."""

    def full_disk(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        write(tmp_path / "keys" / "file", b"content")
    assert contents(tmp_path / "keys") == {}


def test_crash_before_the_public_file_is_harmless(folder: Path) -> None:
    """With the private file alone, the public half is computed from it."""
    expected = read_public_identity(folder / PUBLIC_FILE)
    (folder / PUBLIC_FILE).unlink()
    assert load_identity(folder).public == expected


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_loose_file_mode_is_refused_with_the_command_that_cures_it(folder: Path, mode: int) -> None:
    path = folder / PRIVATE_FILE
    path.chmod(mode)
    error = refused(lambda: load_identity(folder), path)
    assert f"mode {mode:o}" in error.problem
    assert error.remedy == f"chmod 600 {path}"


def test_loose_folder_mode_is_refused_with_the_command_that_cures_it(folder: Path) -> None:
    folder.chmod(0o755)
    assert refused(lambda: load_identity(folder), folder).remedy == f"chmod 700 {folder}"


def test_identity_is_not_created_in_an_open_folder(tmp_path: Path) -> None:
    """An existing folder that others can enter is refused before any key is written."""
    shared = tmp_path / "shared folder"
    shared.mkdir(mode=0o755)
    error = refused(lambda: create_identity(shared, "alice", "client", with_rsa=False), shared)
    assert error.remedy == f"chmod 700 '{shared}'"
    assert contents(shared) == {}


def test_missing_identity_is_named(tmp_path: Path) -> None:
    refused(lambda: load_identity(tmp_path / "nobody"), tmp_path / "nobody")
    (tmp_path / "empty").mkdir(mode=0o700)
    assert (
        "create"
        in refused(lambda: load_identity(tmp_path / "empty"), tmp_path / "empty" / PRIVATE_FILE).remedy
    )
    refused(lambda: read_public_identity(tmp_path / "none.json"), tmp_path / "none.json")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_other_things_in_place_of_the_key_file_are_named(
    tmp_path: Path, make: Callable[[Path, int], None]
) -> None:
    """A folder or a pipe under the name of the key file is refused at once; a pipe does not block."""
    path = tmp_path / PRIVATE_FILE
    tmp_path.chmod(0o700)
    make(path, 0o700)
    assert "regular file" in refused(lambda: load_identity(tmp_path), path).problem


def drop(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields.pop(name)


def put(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields.update({name: value})


PRIVATE_DAMAGE = {
    "field missing": drop("role"),
    "field too many": put("extra", 1),
    "other format": put("format", "something else"),
    "bad name": put("name", "Not A Name"),
    "name is no text": put("name", 7),
    "bad role": put("role", "king"),
    "role is no text": put("role", ["peer"]),
    "key is no text": put("signing_private", 7),
    "key is no base64": put("signing_private", "%%%"),
    "key is short": put("signing_private", "AAAA"),
    "another private key": put("signing_private", "A" * 43 + "="),
    "another public key": put("verify_key", "A" * 43 + "="),
    "RSA key is no key": put("rsa_private", "AAAA"),
}


@pytest.mark.parametrize("damage", PRIVATE_DAMAGE)
def test_damaged_private_file_is_named_and_not_shown(folder: Path, damage: str) -> None:
    """Each damage is reported as corruption of that file, without a piece of the key in the text."""
    path = folder / PRIVATE_FILE
    secret = json.loads(path.read_text())["signing_private"]
    rewrite(path, PRIVATE_DAMAGE[damage])
    error = refused(lambda: load_identity(folder), path)
    assert "corrupt" in error.problem and "backup" in error.remedy
    assert secret not in str(error)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 60_000, b"null"])
def test_file_that_is_no_json_object_is_corrupt(folder: Path, text: bytes) -> None:
    (folder / PRIVATE_FILE).write_bytes(text)
    assert "JSON" in refused(lambda: load_identity(folder), folder / PRIVATE_FILE).problem


def test_huge_file_is_not_read_whole(folder: Path) -> None:
    (folder / PRIVATE_FILE).write_bytes(b" " * 100_000)
    assert "more than" in refused(lambda: load_identity(folder), folder / PRIVATE_FILE).problem


def test_truncation_anywhere_is_noticed(folder: Path) -> None:
    """A private file cut at any byte of its JSON text is refused."""
    path = folder / PRIVATE_FILE
    whole = path.read_bytes().rstrip()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        refused(lambda: load_identity(folder), path)


def test_other_format_version_is_named_with_both_numbers(folder: Path) -> None:
    rewrite(folder / PRIVATE_FILE, put("version", 2))
    problem = refused(lambda: load_identity(folder), folder / PRIVATE_FILE).problem
    require_mentions(problem, "version", 2, 1)


PUBLIC_DAMAGE = {
    "field missing": drop("rsa_public"),
    "bad role": put("role", "king"),
    "key is no base64": put("verify_key", "%%%"),
    "key of small order": put("verify_key", "A" * 43 + "="),
    "RSA key is no key": put("rsa_public", "AAAA"),
    "other fingerprint": put("fingerprint", "0000"),
    "other name": put("name", "bob"),
}


@pytest.mark.parametrize("damage", PUBLIC_DAMAGE)
def test_damaged_public_file_is_named(folder: Path, damage: str) -> None:
    """Any change to a public file contradicts its fingerprint or breaks a rule."""
    rewrite(folder / PUBLIC_FILE, PUBLIC_DAMAGE[damage])
    assert (
        "corrupt" in refused(lambda: read_public_identity(folder / PUBLIC_FILE), folder / PUBLIC_FILE).problem
    )


def simulation_identity() -> Identity:
    keys = json.loads((VECTORS / "sealing_keys.json").read_text())["cases"]
    der = next(bytes.fromhex(key["der"]) for key in keys if key["name"] == "simulation")
    signing = SigningKey.generate(system_entropy)
    rsa_key = RsaPrivateKey.from_der(Secret(der))
    return Identity(PartyId("alice"), Role.PEER, signing, rsa_key)


def test_simulation_key_is_refused_from_disk(tmp_path: Path) -> None:
    """Well-formed files with a pool key are refused, private and public."""
    identity = simulation_identity()
    create_private_file(tmp_path / "keys" / PRIVATE_FILE, keystore._encode_private(identity))
    create_private_file(tmp_path / "keys" / PUBLIC_FILE, keystore._encode_public(identity.public))
    keys = tmp_path / "keys"
    for action, name in (
        (lambda: load_identity(keys), PRIVATE_FILE),
        (lambda: read_public_identity(keys / PUBLIC_FILE), PUBLIC_FILE),
    ):
        with pytest.raises(PrivateFileError, match="simulation-only") as caught:
            action()
        assert caught.value.path == tmp_path / "keys" / name


def test_bad_name_or_role_creates_nothing(tmp_path: Path) -> None:
    with refusal(Rejection, "Name", reason=AbortReason.UNKNOWN_PARTY):
        create_identity(tmp_path / "keys", "Not A Name", "peer", with_rsa=False)
    with refusal(LocalProtocolError, "server", "client", "peer", "organiser"):
        create_identity(tmp_path / "keys", "alice", "king", with_rsa=False)
    assert not (tmp_path / "keys").exists()
