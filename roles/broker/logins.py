"""Logins of a broker: random passwords, and their hashes in the format of mosquitto's password file.

A password is 32 random bytes, made where the keys are made. It keeps strangers from wasting the broker's
time and lets the broker enforce its access list; it protects no secret of the protocol. Being random it
cannot be guessed, so the hash (PBKDF2-SHA512, as mosquitto writes it) may travel to the organiser in the
clear, and few iterations do: they cost the broker's only thread on every connection.

    broker-password    in the key folder, mode 0600
    broker-login       beside it: name and hash, signed by the party, to be enrolled with the public keys; for observers
                       the bare line (roles/broker/signed_login.py)

In the broker's password file the name has the federation before it (transport/mqtt/topics.py), and that login is the
client identifier too: nobody can push another party off, and federations can share a broker.

A few logins are for observers. They hold no key of the protocol, read what parties tell about themselves, and can send
no datagrams. Each connects once at a time, so there are several.

Implements specs/broker.md, section 1.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import require_party_id
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.federation.private_files import create_private_file, read_private_file
from veilsum.roles.process.entropy import system_entropy

OBSERVER = "observer"
OBSERVERS = tuple(f"{OBSERVER}-{number}" for number in range(1, 4))
"""The logins that a new federation has for `veilsum status` and other observers."""
PASSWORD_FILE = "broker-password"  # noqa: S105 - the name of a file
LOGIN_FILE = "broker-login"
LOGIN_FORMAT = "veilsum broker login"
"""Of a login file that a party signed."""

_PASSWORD_BYTES = 32
_SALT_BYTES = 12
_HASH_BYTES = 64
_ITERATIONS = 1000
_MOST_ITERATIONS = 10_000
"""Parties choose the line of their own login; ten million would stop the broker for seconds at every connection."""
_LINE = re.compile(r"([a-z0-9][a-z0-9_-]{0,95}):\$7\$(\d{1,7})\$([A-Za-z0-9+/=]{4,64})\$([A-Za-z0-9+/=]{88})")


def new_login(name: str, random: RandomBytes = system_entropy) -> tuple[bytes, str]:
    """A password, and its line for the password file."""
    password = base64.urlsafe_b64encode(random(_PASSWORD_BYTES)).rstrip(b"=")
    return password, password_line(require_party_id(name), password.decode("ascii"), random(_SALT_BYTES))


def create_login(folder: Path, name: str, random: RandomBytes = system_entropy) -> str:
    """Make a password for an observer, or for the roster's notices; returns its line for the password file."""
    password, line = new_login(name, random)
    create_private_file(folder / PASSWORD_FILE, password + b"\n")
    create_private_file(folder / LOGIN_FILE, line.encode("ascii") + b"\n")
    return line


def read_password(folder: Path) -> str:
    return read_private_file(folder / PASSWORD_FILE).decode("ascii").strip()


def read_login(folder: Path) -> tuple[str, str]:
    """Whose login a folder of ours holds, and its line: in a signed file, or bare as for observers and old keys."""
    text = read_private_file(folder / LOGIN_FILE).decode("ascii", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict) and found.get("format") == LOGIN_FORMAT:
            text = str(found.get("login"))
    return require_login_line(text)


def is_observer(name: str) -> bool:
    """Whether a name is kept for observers; no party is called so."""
    return name == OBSERVER or name.startswith(f"{OBSERVER}-")


def password_line(name: str, password: str, salt: bytes) -> str:
    """One line of mosquitto's password file: `name:$7$iterations$salt$hash`."""
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS, _HASH_BYTES)
    return f"{name}:$7${_ITERATIONS}${_text(salt)}${_text(digest)}"


def require_login_line(text: str) -> tuple[str, str]:
    """The name in a line, and the line; refuses anything that is no such line, or more than one."""
    line = text.strip()
    match = _LINE.fullmatch(line)
    if match is None or not _can_be_checked(match):
        raise LocalProtocolError(
            f"{line[:20]!r}... is no login line (name:$7$iterations$salt$hash): send the file {LOGIN_FILE} "
            "of the key folder"
        )
    return match[1], line


def _can_be_checked(match: re.Match[str]) -> bool:
    """Whether a broker can check a password against the line, and soon."""
    try:
        salt, digest = (base64.b64decode(text, validate=True) for text in (match[3], match[4]))
    except ValueError:
        return False
    return 0 < int(match[2]) <= _MOST_ITERATIONS and len(digest) == _HASH_BYTES and len(salt) > 0


def with_login(line: str, login: str) -> str:
    """The same password under another login."""
    return f"{login}:{line.partition(':')[2]}"


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
