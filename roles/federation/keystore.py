"""Identities on disk.

Keys are made where they are used and the private half never leaves the folder. A folder holds one identity:

* `identity.json`, the private keys, mode 0600;
* `identity.pub.json`, what the organiser of a federation needs in order to list the party in the roster.

Both are small JSON texts with a format name and a version. The private file repeats the verification key
and the public one its fingerprint, so that a damaged file is noticed when it is read and not when a
signature fails. The private file is written first: after a crash between the two, the public half is
computed again from it.

Keys of the simulation pool are refused, whichever way they got here.

Implements specs/keys.md, section 9.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.crypto.sealing import MODULUS_BITS, REAL_EXPONENT, RsaPrivateKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import LocalProtocolError, ProtocolError, Rejection
from veilsum.protocol.identifiers import require_party_id
from veilsum.roles.federation.identity_fields import (
    IDENTITY_FIELDS,
    from_base64,
    identity_fields,
    identity_from_fields,
    to_base64,
)
from veilsum.roles.federation.private_files import (
    PrivateFileError,
    already_exists,
    create_private_file,
    read_private_file,
)
from veilsum.roles.process.entropy import system_entropy

PRIVATE_FILE = "identity.json"
PUBLIC_FILE = "identity.pub.json"

_PRIVATE_FORMAT = "veilsum identity"
_PUBLIC_FORMAT = "veilsum public identity"
_FORMAT_VERSION = 1
_RESTORE = (
    "restore it from a backup, or create a new identity in another folder and have it put into the roster"
)


def create_identity(folder: Path, name: str, role: str, *, with_rsa: bool) -> Identity:
    """Make fresh keys and store them; nothing that exists is touched."""
    party, checked_role = require_party_id(name), _require_role(role)
    for path in (folder / PRIVATE_FILE, folder / PUBLIC_FILE):
        if path.exists():
            raise already_exists(path)
    signing = SigningKey.generate(system_entropy)
    identity = Identity(party, checked_role, signing, generate_rsa_key() if with_rsa else None)
    create_private_file(folder / PRIVATE_FILE, _encode_private(identity))
    create_private_file(folder / PUBLIC_FILE, _encode_public(identity.public))
    return identity


def load_identity(folder: Path) -> Identity:
    """Read the private keys of a folder, refusing loose modes, damage, and simulation-only keys."""
    path = folder / PRIVATE_FILE
    fields = _parse(
        path,
        read_private_file(path),
        _PRIVATE_FORMAT,
        ("name", "role", "verify_key", "signing_private", "rsa_private"),
    )
    try:
        identity = _build_private(fields)
    except (ProtocolError, ValueError, TypeError) as error:
        raise _corrupt(path, str(error)) from None
    if fields["verify_key"] != to_base64(identity.signing.public):
        raise _corrupt(path, "the signing key and the verification key do not belong together")
    _require_real(path, identity.public)
    return identity


def read_public_identity(path: Path) -> PublicIdentity:
    """Read one public identity file, which may have come from another party and may have any mode."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise PrivateFileError(path, "does not exist", "correct the path") from None
    fields = _parse(path, content, _PUBLIC_FORMAT, (*IDENTITY_FIELDS, "fingerprint"))
    try:
        identity = identity_from_fields(fields)
    except (ProtocolError, ValueError, TypeError) as error:
        raise _corrupt(path, str(error)) from None
    if fields["fingerprint"] != identity.fingerprint:
        raise _corrupt(path, "the keys and the fingerprint do not belong together")
    _require_real(path, identity)
    return identity


def generate_rsa_key() -> RsaPrivateKey:
    """A fresh RSA-3072 key; `cryptography` makes it, being several times faster at the search for primes."""
    key = rsa.generate_private_key(REAL_EXPONENT, MODULUS_BITS)
    return RsaPrivateKey.from_der(
        Secret(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    )


def _build_private(fields: dict[str, object]) -> Identity:
    rsa_private = fields["rsa_private"]
    return Identity(
        require_party_id(fields["name"]),
        _require_role(fields["role"]),
        SigningKey.from_private(Secret(from_base64(fields["signing_private"]))),
        None if rsa_private is None else RsaPrivateKey.from_der(Secret(from_base64(rsa_private))),
    )


def _encode_private(identity: Identity) -> bytes:
    return _encode(
        _PRIVATE_FORMAT,
        {
            "name": identity.name,
            "role": identity.role.value,
            "verify_key": to_base64(identity.signing.public),
            "signing_private": to_base64(identity.signing.private.reveal()),
            "rsa_private": None if identity.rsa is None else to_base64(identity.rsa.der.reveal()),
        },
    )


def _encode_public(public: PublicIdentity) -> bytes:
    return _encode(_PUBLIC_FORMAT, {**identity_fields(public), "fingerprint": public.fingerprint})


def _encode(format_name: str, fields: dict[str, str | None]) -> bytes:
    return (
        json.dumps({"format": format_name, "version": _FORMAT_VERSION, **fields}, indent=2).encode() + b"\n"
    )


def _parse(path: Path, content: bytes, format_name: str, names: Sequence[str]) -> dict[str, object]:
    """The fields of a key file. The parser's own error is dropped, because it carries the whole text."""
    fields: object = None
    with contextlib.suppress(ValueError, RecursionError):
        fields = json.loads(content)
    if not isinstance(fields, dict):
        raise _corrupt(path, "it is not a JSON object")
    if fields.get("format") != format_name:
        raise _corrupt(path, f"its format is not {format_name!r}")
    if fields.get("version") != _FORMAT_VERSION:
        raise PrivateFileError(
            path,
            f"has format version {fields.get('version')!r}, this program reads {_FORMAT_VERSION}",
            "use the program version that wrote it, or create a new identity in another folder",
        )
    if set(fields) != {"format", "version", *names}:
        raise _corrupt(path, f"its fields are not {', '.join(names)}")
    return fields


def _require_role(role: object) -> Role:
    if role not in list(Role):
        raise LocalProtocolError(f"{role!r} is not a role: choose one of {', '.join(Role)}")
    return Role(str(role))


def _require_real(path: Path, identity: PublicIdentity) -> None:
    try:
        identity.require_real()
    except Rejection:
        raise PrivateFileError(
            path, "holds an RSA key marked simulation-only", "create a new identity in another folder"
        ) from None


def _corrupt(path: Path, why: str) -> PrivateFileError:
    return PrivateFileError(path, f"is corrupt ({why})", _RESTORE)
