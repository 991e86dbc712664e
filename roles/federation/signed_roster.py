"""The signed roster: who may take part, under which settings, signed by the organiser.

A roster file lists names, roles and public keys, and repeats the agreed settings of federation.toml, so that
whoever finds a difference can say which setting differs. The organiser signs all of it under a version that
only grows. The organiser is never the server: a server that could write the roster could admit Sybils.

The file proves nothing by itself, since anybody can make an organiser key. A party therefore pins the
organiser's key and the highest version it has accepted (roles/federation/pins.py).

Implements specs/threat-model.md, section 5, and specs/federation-file.md, section 1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.crypto.signing import verify_signature
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, ProtocolError, Rejection
from veilsum.roles.federation.first_models import AgreedModel, agreed_model_fields, agreed_model_from_fields
from veilsum.roles.federation.identity_fields import (
    IDENTITY_FIELDS,
    from_base64,
    identity_fields,
    identity_from_fields,
    to_base64,
)
from veilsum.roles.federation.public_files import replace_public_file

ROSTER_FILE = "roster.json"
SIGNATURE_DOMAIN = "roster"

_FORMAT = "veilsum roster"
_FORMAT_VERSION = 4
_FIELDS = {
    "format",
    "format_version",
    "version",
    "organiser",
    "agreed",
    "identities",
    "evicted",
    "anchor",
    "first_model",
    "signature",
}
_ANCHOR_FIELDS = {"chain", "position", "state_hash", "electorate", "checkpoint"}
_TAG = domain_tag("signed-roster")
_LARGEST_FILE = 256 * 1024 * 1024


class RosterRefused(ParameterError):
    """A roster, or a party's place in it, is not acceptable; the text names the file, the cause and the remedy."""

    def __init__(self, path: Path, reason: AbortReason, detail: str) -> None:
        self.path = path
        self.reason = reason
        self.detail = detail
        super().__init__([f"{path}: {reason.value}: {detail}"])


@dataclass(frozen=True)
class SignedRoster:
    """A roster with the settings it was signed for; `evicted` maps a name to the version that dropped it.

    `first_model` is what the enrolled parties state about the first model, as soon as they do.
    """

    roster: Roster
    organiser: PublicIdentity
    agreed: Mapping[str, Any]
    evicted: Mapping[str, int]
    first_model: AgreedModel | None = None
    signature: bytes = b""

    @property
    def version(self) -> int:
        return self.roster.version

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over everything that is signed."""
        return hashlib.sha256(
            length_prefixed(
                _TAG,
                self.roster.digest,
                self.organiser.digest,
                _canonical(self.agreed),
                _canonical(self.evicted),
                _canonical(agreed_model_fields(self.first_model) or {}),
            )
        ).digest()

    @property
    def federation_id(self) -> str:
        """What keeps federations on one broker apart: the organiser's key and the federation's name."""
        return f"{self.organiser.digest.hex()}:{self.agreed.get('name', '')}"

    def require_signed(self) -> None:
        verify_signature(self.organiser.verify_key, SIGNATURE_DOMAIN, self.digest, self.signature)

    def require_enrolled(self, path: Path, identity: PublicIdentity) -> None:
        """Refuse an identity that is unknown, evicted, or listed with other keys or in another role."""
        if identity.name in self.evicted:
            raise RosterRefused(
                path,
                AbortReason.UNKNOWN_PARTY,
                f"{identity.name} was evicted in version {self.evicted[identity.name]}; only the organiser can "
                "enrol it again",
            )
        try:
            listed = self.roster.identity(identity.name)
        except Rejection as refusal:
            raise RosterRefused(
                path, refusal.reason, f"{refusal.detail}; ask the organiser for: veilsum roster add"
            ) from None
        if listed != identity:
            raise RosterRefused(
                path,
                AbortReason.BAD_KEY,
                f"{identity.name} is listed as {listed!r}, but its key folder holds {identity!r}; use the folder "
                "that was enrolled, or have the new keys enrolled",
            )


def sign_roster(
    organiser: Identity,
    version: int,
    identities: tuple[PublicIdentity, ...],
    agreed: Mapping[str, Any],
    evicted: Mapping[str, int] | None = None,
    anchor: Anchor | None = None,
    first_model: AgreedModel | None = None,
) -> SignedRoster:
    """The roster in the organiser's hand; keys of the simulation pool and the organiser itself are refused."""
    if organiser.role is not Role.ORGANISER:
        raise LocalProtocolError(
            f"{organiser.name} is a {organiser.role}: only an organiser signs rosters, never the server or a party"
        )
    for identity in identities:
        identity.require_real()
        if identity.role is Role.ORGANISER or identity.verify_key == organiser.signing.public:
            raise LocalProtocolError(
                f"{identity.name} holds the organiser's role or key and cannot be a party"
            )
    roster = Roster(version, identities, anchor)
    unsigned = SignedRoster(roster, organiser.public, dict(agreed), dict(evicted or {}), first_model)
    return replace(unsigned, signature=organiser.signing.sign(SIGNATURE_DOMAIN, unsigned.digest))


def write_roster(path: Path, signed: SignedRoster) -> None:
    """Replace the file, or leave the old one, but never half of each."""
    replace_public_file(path, encode_roster(signed))


def encode_roster(signed: SignedRoster) -> bytes:
    """The content of a roster file."""
    document = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "version": signed.version,
        "organiser": identity_fields(signed.organiser),
        "agreed": dict(signed.agreed),
        "identities": [identity_fields(one) for one in signed.roster.identities],
        "evicted": dict(signed.evicted),
        "anchor": anchor_fields(signed.roster.anchor),
        "first_model": agreed_model_fields(signed.first_model),
        "signature": to_base64(signed.signature),
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def read_roster(path: Path) -> SignedRoster:
    """A roster whose signature is that of the organiser it names; whether to believe that one is for the pins."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ParameterError(
            [f"{path} does not exist: veilsum init makes one, or ask the organiser for it"]
        ) from None
    return decode_roster(content, path)


def decode_roster(content: bytes, path: Path) -> SignedRoster:
    """The same of bytes that came otherwise; `path` is what a refusal calls them."""
    try:
        signed = _decode(content)
        signed.require_signed()
        for identity in signed.roster.identities:
            identity.require_real()
    except Rejection as refusal:
        raise RosterRefused(path, refusal.reason, refusal.detail) from None
    except (ProtocolError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RosterRefused(
            path, AbortReason.BAD_ENCODING, f"{error}; get a fresh copy from the organiser"
        ) from None
    return signed


def load_roster(path: Path, pinned_organiser: bytes) -> SignedRoster:
    """The roster, if the organiser with this verification key signed it."""
    signed = read_roster(path)
    if signed.organiser.verify_key != pinned_organiser:
        raise RosterRefused(
            path,
            AbortReason.WRONG_ROSTER,
            f"it is signed by {signed.organiser!r}, not by the organiser that was pinned",
        )
    return signed


def _decode(content: bytes) -> SignedRoster:
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"it has more than {_LARGEST_FILE} bytes")
    document = json.loads(content, object_pairs_hook=_no_duplicates)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    if document.get("format_version") != _FORMAT_VERSION:
        raise ValueError(
            f"its format version is {document.get('format_version')!r}, this program reads {_FORMAT_VERSION}: the "
            "organiser makes the federation anew with veilsum init --no-keys, and enrols the public files that the "
            "parties have"
        )
    if set(document) != _FIELDS:
        raise ValueError(f"its fields are not {', '.join(sorted(_FIELDS))}")
    evicted = {str(name): _require_version(version) for name, version in document["evicted"].items()}
    return SignedRoster(
        Roster(
            _require_version(document["version"]),
            tuple(map(_identity, document["identities"])),
            _anchor(document["anchor"]),
        ),
        _identity(document["organiser"]),
        dict(document["agreed"]),
        evicted,
        agreed_model_from_fields(document["first_model"]),
        from_base64(document["signature"]),
    )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key appears twice")
    return fields


def _require_version(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        raise ValueError(f"a version is a positive whole number, not {value!r}")
    return value


def anchor_fields(anchor: Anchor | None) -> dict[str, Any] | None:
    """An anchor as fields of JSON: bytes are hexadecimal."""
    if anchor is None:
        return None
    return {
        "chain": anchor.chain.hex(),
        "position": anchor.position,
        "state_hash": anchor.state_hash.hex(),
        "electorate": list(anchor.electorate),
        "checkpoint": anchor.checkpoint,
    }


def _anchor(fields: Any) -> Anchor | None:
    if fields is None:
        return None
    if not isinstance(fields, dict) or set(fields) != _ANCHOR_FIELDS:
        raise ValueError(f"an anchor has the fields {', '.join(sorted(_ANCHOR_FIELDS))}")
    chain, state_hash = bytes.fromhex(fields["chain"]), bytes.fromhex(fields["state_hash"])
    return Anchor(chain, fields["position"], state_hash, tuple(fields["electorate"]), fields["checkpoint"])


def _identity(fields: Any) -> PublicIdentity:
    if not isinstance(fields, dict) or set(fields) != set(IDENTITY_FIELDS):
        raise ValueError("an identity has the fields name, role, verify_key and rsa_public")
    return identity_from_fields(fields)


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
