"""An anchor is well formed or cannot be built, and no part of it can change under the same roster hash."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import PublicIdentity, Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId

ANCHOR = Anchor(bytes(range(32)), 7, bytes(range(32, 64)), (PartyId("a"), PartyId("b"), PartyId("c")))
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a short chain id": ({"chain": bytes(31)}, "chain id"),
    "a short state hash": ({"state_hash": bytes(33)}, "state hash"),
    "a chain id as text": ({"chain": "0" * 32}, "chain id"),
    "a position below 0": ({"position": -1}, "position"),
    "a position that no header can carry": ({"position": 2**63}, "position"),
    "a truth value as position": ({"position": True}, "position"),
    "a number of checkpoints below 0": ({"checkpoint": -1}, "checkpoints"),
    "nobody who votes": ({"electorate": ()}, "electorate"),
    "a voter twice": ({"electorate": ("a", "a")}, "once"),
    "voters out of order": ({"electorate": ("b", "a")}, "sorted"),
    "a voter that is no party name": ({"electorate": ("A b",)}, "not a party name"),
    "the server as voter": ({"electorate": ("server",)}, "server has no vote"),
}


def identity(name: str, role: Role = Role.CLIENT) -> PublicIdentity:
    key = SigningKey.from_private(Secret(hashlib.sha256(name.encode()).digest()))
    return PublicIdentity(PartyId(name), role, key.public)


MEMBERS = (identity("a"), identity("b"), identity("server", Role.SERVER))


@pytest.mark.parametrize("defect", BROKEN)
def test_an_anchor_that_breaks_a_rule_cannot_be_built(defect: str) -> None:
    change, told = BROKEN[defect]
    with pytest.raises(ParameterError, match=told):
        replace(ANCHOR, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"chain": bytes(32)},
        {"position": 8},
        {"state_hash": bytes(32)},
        {"electorate": ANCHOR.electorate[:2]},
        {"checkpoint": 1},
    ],
)
def test_every_part_of_the_anchor_is_under_the_hash_of_the_roster(change: dict[str, Any]) -> None:
    hashes = {Roster(3, MEMBERS, anchor).digest for anchor in (None, ANCHOR, replace(ANCHOR, **change))}
    assert len(hashes) == 3


def test_a_voter_that_was_evicted_since_stays_in_the_electorate() -> None:
    roster = Roster(3, MEMBERS, ANCHOR)
    assert "c" not in roster.participants
    assert roster.anchor == ANCHOR


def test_a_member_of_the_roster_that_takes_no_part_has_no_vote() -> None:
    organiser = identity("c", Role.ORGANISER)
    with pytest.raises(ParameterError, match="organiser"):
        Roster(3, (*MEMBERS, organiser), ANCHOR)
