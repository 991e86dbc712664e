"""The file that an organiser sends to one party: all that it needs in order to come, signed.

It holds the settings and the code that they name, the signed roster, the certificate authority of the broker, and a
password for the broker. The organiser's key signs all of it, and the words of the file cover that key. Who reads the
file on its way has the password: with it the broker lets him in under the party's name, where until the enrolment he
may read the roster and nothing else. He can also send keys of his own under the name; that is what the words of the
keys, read back to the organiser, are for.

Implements specs/invitations.md, section 1.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import verify_signature
from veilsum.protocol.errors import ParameterError, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId, require_party_id
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.folder import BROKER_FOLDER
from veilsum.roles.federation.identity_fields import from_base64, to_base64
from veilsum.roles.federation.signed_roster import SignedRoster, decode_roster, encode_roster
from veilsum.roles.invitations.json_file import BadFile, encode_object, read_object
from veilsum.roles.invitations.words import words_of

SUFFIX = ".invite"
ID_BYTES = 16
FORMAT = "veilsum invitation"
_VERSION = 1
_DOMAIN = "invitation"
_FIELDS = ("id", "name", "role", "until", "settings", "code", "roster", "authority", "password", "signature")
_ASK_AGAIN = "ask the organiser to send it again"


@dataclass(frozen=True)
class InvitationFile:
    """`until` is the last moment at which it may be used, in seconds since 1970; `code` has each file's content."""

    id: bytes
    name: PartyId
    role: Role
    until: int
    settings: str
    code: Mapping[str, bytes]
    signed: SignedRoster
    authority: str | None
    password: Secret = field(repr=False)
    signature: bytes = b""

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over all that must be authentic, the organiser's key by way of the roster."""
        code = {name: hashlib.sha256(content).hexdigest() for name, content in self.code.items()}
        parts = (
            self.id,
            self.name.encode(),
            self.role.value.encode(),
            self.until.to_bytes(8, "big"),
            self.settings.encode(),
            json.dumps(code, sort_keys=True).encode(),
            self.signed.digest,
            self.signed.organiser.digest,
            (self.authority or "").encode(),
            hashlib.sha256(self.password.reveal()).digest(),
        )
        return hashlib.sha256(length_prefixed(domain_tag(_DOMAIN), *parts)).digest()

    @property
    def words(self) -> str:
        return words_of(_DOMAIN, self.digest)

    @property
    def last_day(self) -> str:
        return datetime.datetime.fromtimestamp(self.until, datetime.UTC).date().isoformat()

    def signed_by(self, organiser: Identity) -> InvitationFile:
        return replace(self, signature=organiser.signing.sign(_DOMAIN, self.digest))

    def encode(self) -> bytes:
        return encode_object(
            FORMAT,
            _VERSION,
            {
                "id": self.id.hex(),
                "name": self.name,
                "role": self.role.value,
                "until": self.until,
                "settings": self.settings,
                "code": {name: base64.b64encode(content).decode() for name, content in self.code.items()},
                "roster": encode_roster(self.signed).decode(),
                "authority": self.authority,
                "password": self.password.reveal().decode("ascii"),
                "signature": to_base64(self.signature),
            },
        )


def read_invitation(path: Path) -> InvitationFile:
    """An invitation as its organiser wrote it; whether to believe that organiser is for the words."""
    fields = read_object(path, FORMAT, _VERSION, _FIELDS, _ASK_AGAIN)
    try:
        found = InvitationFile(
            bytes.fromhex(fields["id"]),
            require_party_id(fields["name"]),
            Role(fields["role"]),
            _whole(fields["until"]),
            _text(fields["settings"]),
            {_plain_name(name): from_base64(content) for name, content in fields["code"].items()},
            decode_roster(_text(fields["roster"]).encode(), path),
            None if fields["authority"] is None else _text(fields["authority"]),
            Secret(_text(fields["password"]).encode("ascii")),
            from_base64(fields["signature"]),
        )
        if len(found.id) != ID_BYTES or found.role not in (Role.CLIENT, Role.PEER):
            raise ValueError("its id or role is that of no party")
        verify_signature(found.signed.organiser.verify_key, _DOMAIN, found.digest, found.signature)
    except Rejection:
        raise BadFile(path, "is not what the organiser signed (BAD_SIGNATURE)", _ASK_AGAIN) from None
    except (ProtocolError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadFile(path, f"is damaged ({error})", _ASK_AGAIN) from None
    return found


def authority_path(config: FederationConfig) -> PurePosixPath | None:
    """Where the certificate authority lies, relative to the settings; it travels to the broker's files only."""
    if config.broker_ca is None:
        return None
    path = PurePosixPath(config.broker_ca)
    if path.parts[:1] != (BROKER_FOLDER,) or len(path.parts) < 2 or ".." in path.parts:
        raise ParameterError(
            [
                f"[broker] ca = {config.broker_ca!r} is no file below {BROKER_FOLDER}/, and an invitation brings none "
                f'elsewhere: the organiser puts it there, sets ca = "{BROKER_FOLDER}/ca.pem", and invites again'
            ]
        )
    return path


def _plain_name(name: str) -> str:
    """A file of code lies beside the settings, under a name without folders."""
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"{name!r} is no plain name of a file")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {type(value).__name__}")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise ValueError("until is no moment")
    return value
