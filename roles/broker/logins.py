"""Logins of a broker: random passwords, and their hashes in the format of mosquitto's password file.

A password is 32 random bytes, made where the keys are made. It keeps strangers from wasting the broker's
time and lets the broker enforce its access list; it protects no secret of the protocol. Being random it
cannot be guessed, so the hash (PBKDF2-SHA512, as mosquitto writes it) may travel to the organiser in the
clear, and few iterations do: they cost the broker's only thread on every connection.

    broker-password    in the key folder, mode 0600
    broker-login       beside it: the line for the broker's password file, to be enrolled with the public keys

Implements specs/broker.md, section 1.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import require_party_id
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.federation.private_files import create_private_file, read_private_file
from veilsum.roles.process.entropy import system_entropy

PASSWORD_FILE = "broker-password"  # noqa: S105 - the name of a file
LOGIN_FILE = "broker-login"

_PASSWORD_BYTES = 32
_SALT_BYTES = 12
_HASH_BYTES = 64
_ITERATIONS = 1000
_LINE = re.compile(r"([a-z0-9][a-z0-9_-]{0,62}):\$7\$(\d{1,7})\$([A-Za-z0-9+/=]{4,64})\$([A-Za-z0-9+/=]{88})")


def create_login(folder: Path, name: str, random: RandomBytes = system_entropy) -> str:
    """Make a password for the party whose key folder this is; returns its line for the password file."""
    password = base64.urlsafe_b64encode(random(_PASSWORD_BYTES)).rstrip(b"=")
    line = password_line(require_party_id(name), password.decode("ascii"), random(_SALT_BYTES))
    create_private_file(folder / PASSWORD_FILE, password + b"\n")
    create_private_file(folder / LOGIN_FILE, line.encode("ascii") + b"\n")
    return line


def read_password(folder: Path) -> str:
    return read_private_file(folder / PASSWORD_FILE).decode("ascii").strip()


def password_line(name: str, password: str, salt: bytes) -> str:
    """One line of mosquitto's password file: `name:$7$iterations$salt$hash`."""
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS, _HASH_BYTES)
    return f"{name}:$7${_ITERATIONS}${_text(salt)}${_text(digest)}"


def require_login_line(text: str) -> tuple[str, str]:
    """The name in a line, and the line; refuses anything that is no such line, or more than one."""
    line = text.strip()
    match = _LINE.fullmatch(line)
    if match is None:
        raise LocalProtocolError(
            f"{line[:20]!r}... is no login line (name:$7$iterations$salt$hash): send the file {LOGIN_FILE} "
            "of the key folder"
        )
    return match[1], line


def password_matches(line: str, password: str) -> bool:
    """Whether a password is the one behind a line; for the embedded broker."""
    match = _LINE.fullmatch(line)
    if match is None:
        return False
    expected = base64.b64decode(match[4])
    found = hashlib.pbkdf2_hmac(
        "sha512", password.encode(), base64.b64decode(match[3]), int(match[2]), len(expected)
    )
    return hmac.compare_digest(expected, found)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
