"""Signed statuses: what is shown was said by the party it names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.monitor.status import Status, open_status, sign_status
from veilsum.roles.monitor.watching import Board
from veilsum.roles.process.entropy import SeededEntropy

ALICE = Identity(PartyId("alice"), Role.CLIENT, SigningKey.generate(SeededEntropy(1)))
EVE = Identity(PartyId("eve"), Role.CLIENT, SigningKey.generate(SeededEntropy(2)))
ROSTER = Roster(1, (ALICE.public,))
STATUS = Status("alice", "client", 3, 1, 0, 2, 0, "waiting", 10, 20, 0, ("server",))


def test_a_status_comes_back_as_it_was_signed() -> None:
    assert open_status(ROSTER, "fed", sign_status(ALICE, "fed", STATUS)) == STATUS


def test_a_status_of_a_stranger_another_federation_or_another_hand_is_refused() -> None:
    for signer, status, federation, reason in (
        (EVE, replace(STATUS, party="eve"), "fed", AbortReason.UNKNOWN_PARTY),
        (EVE, STATUS, "fed", AbortReason.BAD_SIGNATURE),
        (ALICE, STATUS, "another", AbortReason.BAD_SIGNATURE),
    ):
        with pytest.raises(Rejection) as refusal:
            open_status(ROSTER, "fed", sign_status(signer, federation, status))
        assert refusal.value.reason is reason


@given(data=st.one_of(st.binary(max_size=100), st.text(max_size=100).map(str.encode)))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Rejection):
        open_status(ROSTER, "fed", data)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_json_of_another_shape_is_refused(value: object) -> None:
    for document in (value, {"status": json.dumps(value), "signature": ""}):
        with pytest.raises(Rejection):
            open_status(ROSTER, "fed", json.dumps(document).encode())


def test_an_older_status_does_not_replace_a_newer_one() -> None:
    """Numbers grow within a life, and lives grow with restarts."""
    board = Board()
    newer = replace(STATUS, life=4, number=1, phase="knocking")
    for status in (STATUS, newer, replace(STATUS, number=99)):
        board.take(status)
    assert board.statuses == {"alice": newer}
