"""What a party remembers about the organiser: the key, and the newest roster it has accepted.

The pin lies in the party's key folder, mode 0600. With it, a roster of another organiser, an older roster
(which might still list an evicted party) and a second roster under a known version are refused, whoever
hands them over.

Implements specs/threat-model.md, section 5.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from veilsum.protocol.crypto.identity import PublicIdentity
from veilsum.protocol.errors import AbortReason
from veilsum.roles.federation.identity_fields import from_base64, to_base64
from veilsum.roles.federation.private_files import PrivateFileError, read_private_file, replace_private_file
from veilsum.roles.federation.signed_roster import RosterRefused, SignedRoster, load_roster

PIN_FILE = "roster.pin.json"
_FORMAT = "veilsum roster pin"
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Pin:
    """The organiser's verification key, and version and digest of the newest accepted roster."""

    organiser: bytes
    version: int = 0
    digest: bytes = b""


def pin_organiser(key_folder: Path, organiser: PublicIdentity) -> None:
    """Trust this organiser from now on; an earlier pin of another one is not silently replaced."""
    path = key_folder / PIN_FILE
    if path.exists():
        if read_pin(key_folder).organiser == organiser.verify_key:
            return
        raise PrivateFileError(
            path, "pins another organiser", "remove the file if the federation really has a new organiser"
        )
    _write(key_folder, Pin(organiser.verify_key))


def read_pin(key_folder: Path) -> Pin:
    path = key_folder / PIN_FILE
    if not path.exists():
        raise PrivateFileError(
            path,
            "does not exist, so no organiser is trusted yet",
            "compare the organiser's fingerprint with them, then: veilsum roster pin",
        )
    try:
        fields = json.loads(read_private_file(path))
        if fields["format"] != _FORMAT or fields["format_version"] != _FORMAT_VERSION:
            raise ValueError("another format")
        version = int(fields["version"])
        return Pin(from_base64(fields["organiser"]), version, bytes.fromhex(fields["digest"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise PrivateFileError(
            path, "is corrupt", "remove it and pin the organiser again: veilsum roster pin"
        ) from None


def accept_roster(path: Path, key_folder: Path) -> SignedRoster:
    """The roster, if it is acceptable; then remember it."""
    pin, signed = read_pin(key_folder), acceptable_roster(path, key_folder)
    if signed.version > pin.version:
        _write(key_folder, Pin(pin.organiser, signed.version, signed.digest))
    return signed


def acceptable_roster(path: Path, key_folder: Path) -> SignedRoster:
    """The roster, if the pinned organiser signed it and no newer one was accepted before; nothing is remembered."""
    pin = read_pin(key_folder)
    signed = load_roster(path, pin.organiser)
    if signed.version < pin.version:
        raise RosterRefused(
            path,
            AbortReason.WRONG_ROSTER,
            f"it has version {signed.version}, and version {pin.version} was accepted before: get the newest one",
        )
    if signed.version == pin.version and signed.digest != pin.digest:
        raise RosterRefused(
            path,
            AbortReason.EQUIVOCATION,
            f"another roster of version {pin.version} was accepted before: the organiser signed two; ask them",
        )
    return signed


def _write(key_folder: Path, pin: Pin) -> None:
    document = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "organiser": to_base64(pin.organiser),
        "version": pin.version,
        "digest": pin.digest.hex(),
    }
    replace_private_file(key_folder / PIN_FILE, json.dumps(document, indent=2).encode() + b"\n")
