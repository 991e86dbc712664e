"""A federation without keys and parties that come to it by invitation, for tests of files alone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.invitations.invitation_file import read_invitation
from veilsum.roles.invitations.inviting import invite
from veilsum.roles.invitations.joining import Place, settle, write_reply

NAMES = ("alice", "bob", "carol")
CONFIG = FederationConfig(
    name="clinics", scheme="masked", parties=NAMES, task="vectors:7", broker_tls=True, broker_port=1
)


def invited(fed: Path, name: str = "alice") -> Path:
    (sent,) = invite(fed, fed / "organiser", [name], days=30)
    return sent.path


def place_of(path: Path, folder: Path) -> Place:
    return Place(folder, read_invitation(path))


def answer(path: Path, folder: Path) -> Path:
    """A party that compared the words, made keys and wrote its enrolment file."""
    place = place_of(path, folder)
    settle(place)
    write_reply(place, None, None)
    return place.reply_file


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewritten(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    document = json.loads(path.read_text())
    change(document)
    target.write_text(json.dumps(document))
    return target


class TypingPerson(io.StringIO):
    """Somebody who types, in place of standard input."""

    def isatty(self) -> bool:
        return True
