"""Names of parties and sessions, and how rounds are told."""

from __future__ import annotations

import re
from typing import NewType

from veilsum.protocol.errors import AbortReason, Rejection

PartyId = NewType("PartyId", str)
SessionId = NewType("SessionId", bytes)

SERVER = PartyId("server")
SESSION_ID_BYTES = 32

_PARTY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def shown_number(index: int) -> int:
    """A round or an attempt as people and programs read it: counted from 1.

    Machines, messages, views and learners count from 0, since hashes and seeds are made of that number.
    """
    return index + 1


def shown_attempt(round_index: int, attempt_index: int) -> str:
    """One attempt of a round in words."""
    return f"round {shown_number(round_index)} attempt {shown_number(attempt_index)}"


def require_party_id(text: object) -> PartyId:
    """A party name is 1 to 63 of a-z, 0-9, '-', '_', so that it is safe in topics, file names and logs."""
    if not isinstance(text, str) or not _PARTY_NAME.fullmatch(text):
        raise Rejection(
            AbortReason.UNKNOWN_PARTY, f"{text!r} is not a party name (a-z, 0-9, '-', '_', at most 63)"
        )
    return PartyId(text)
