"""The login file of a party: the line for the broker, signed with the party's key.

The words and the fingerprint stand for the keys alone. Without the signature, who carries the public files to the
organiser could put a login of his own beside keys that are the party's: he would have its place at the broker, and the
party would be shut out. Observers have no keys; nobody enrols them, and their file is the bare line.

Rejected: words that cover the login too, since those that a party has read to the organiser would not be those of its
keys any more, and the fingerprint in a roster could not be compared with them.

Implements specs/keys.md, section 9.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity, PublicIdentity
from veilsum.protocol.crypto.signing import verify_signature
from veilsum.protocol.errors import LocalProtocolError, Rejection
from veilsum.roles.broker.logins import (
    LOGIN_FILE,
    LOGIN_FORMAT,
    PASSWORD_FILE,
    new_login,
    read_login,
    require_login_line,
)
from veilsum.roles.federation.identity_fields import from_base64, to_base64
from veilsum.roles.federation.private_files import create_private_file, replace_private_file
from veilsum.roles.invitations.json_file import BadFile, encode_object, format_of, read_object

_VERSION = 1
_DOMAIN = "login"
_FIELDS = ("login", "signature")
_ASK_AGAIN = f"ask the party for the {LOGIN_FILE} of its key folder, on another way"


def create_signed_login(folder: Path, identity: Identity) -> str:
    """Make a password for the party whose key folder this is; returns its line for the password file."""
    password, line = new_login(identity.name)
    create_private_file(folder / PASSWORD_FILE, password + b"\n")
    create_private_file(folder / LOGIN_FILE, _encode(identity, line))
    return line


def sign_login_again(folder: Path, identity: Identity) -> None:
    """Sign the login that a key folder has, as for keys of a version that did not."""
    name, line = read_login(folder)
    if name != identity.name:
        raise LocalProtocolError(
            f"{folder} has keys of {identity.name} and the login of {name}: make new keys"
        )
    replace_private_file(folder / LOGIN_FILE, _encode(identity, line))


def login_signed_by(identity: PublicIdentity, path: Path) -> str:
    """The line in a login file that came with these keys, if their owner signed it."""
    if format_of(path) is None and _is_bare_line(path):
        raise BadFile(
            path,
            f"is a login that {identity.name} did not sign, of an earlier version or of somebody else",
            "ask the party to run veilsum keys sign-login KEYDIR, and to send the file again",
        )
    fields = read_object(path, LOGIN_FORMAT, _VERSION, _FIELDS, _ASK_AGAIN)
    try:
        name, line = require_login_line(fields["login"])
        if line != fields["login"]:
            raise ValueError("its login has more than a line")
        signature = from_base64(fields["signature"])
    except (LocalProtocolError, ValueError, TypeError, AttributeError) as error:
        raise BadFile(path, f"is damaged ({error})", _ASK_AGAIN) from None
    if name != identity.name:
        raise BadFile(path, f"is the login of {name}, not of {identity.name}", _ASK_AGAIN)
    try:
        verify_signature(identity.verify_key, _DOMAIN, login_digest(identity, line), signature)
    except Rejection as refusal:
        problem = f"is not what {identity.name} signed ({refusal.reason.value})"
        raise BadFile(path, problem, _ASK_AGAIN) from None
    return line


def login_digest(identity: PublicIdentity, line: str) -> bytes:
    """What the party signs."""
    parts = identity.digest, line.encode("ascii")
    return hashlib.sha256(length_prefixed(domain_tag(_DOMAIN), *parts)).digest()


def _encode(identity: Identity, line: str) -> bytes:
    signature = identity.signing.sign(_DOMAIN, login_digest(identity.public, line))
    return encode_object(LOGIN_FORMAT, _VERSION, {"login": line, "signature": to_base64(signature)})


def _is_bare_line(path: Path) -> bool:
    try:
        require_login_line(path.read_bytes().decode("ascii"))
    except (LocalProtocolError, OSError, UnicodeDecodeError):
        return False
    return True
