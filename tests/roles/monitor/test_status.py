"""Signed statuses: what is shown was said by the party it names."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.federations import make_federation
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.monitor.status import Status, _digest, open_status, sign_status
from veilsum.roles.monitor.watching import Board, describe, late_parties, newest_measured
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.transport.base import Datagram

ALICE = Identity(PartyId("alice"), Role.CLIENT, SigningKey.generate(SeededEntropy(1)))
EVE = Identity(PartyId("eve"), Role.CLIENT, SigningKey.generate(SeededEntropy(2)))
ROSTER = Roster(1, (ALICE.public,))
STATUS = Status("alice", "client", 3, 1, 0, 2, 0, "waiting", 10, 20, 0, ("server",))


def test_a_status_comes_back_as_it_was_signed() -> None:
    assert open_status(ROSTER, "fed", sign_status(ALICE, "fed", STATUS)) == STATUS


def test_metrics_of_the_common_model_travel_where_they_are_told_and_a_status_without_is_read() -> None:
    told = replace(STATUS, measured=2, metrics={"accuracy": 0.5, "loss": 1.0})
    assert open_status(ROSTER, "fed", sign_status(ALICE, "fed", told)) == told
    board = Board()
    board.take(told)
    assert newest_measured(board) == told
    earlier = {name: value for name, value in asdict(STATUS).items() if name not in ("measured", "metrics")}
    text = json.dumps(earlier)
    signature = ALICE.signing.sign("status", _digest("fed", text))
    data = json.dumps({"status": text, "signature": base64.b64encode(signature).decode()}).encode()
    assert open_status(ROSTER, "fed", data) == STATUS


@pytest.mark.parametrize(
    "metrics",
    [{"a": float("nan")}, {"a": 1}, {"a": "b"}, {"a" * 65: 1.0}, {str(n): 1.0 for n in range(17)}, ["a"]],
)
def test_metrics_that_are_no_few_finite_numbers_are_refused(metrics: Any) -> None:
    with pytest.raises(Rejection) as refusal:
        open_status(ROSTER, "fed", sign_status(ALICE, "fed", replace(STATUS, metrics=metrics)))
    assert refusal.value.reason is AbortReason.BAD_ENCODING


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


texts = st.text(st.characters(exclude_categories=()), max_size=5)
values = st.one_of(
    st.integers(),
    st.sampled_from([2**53, 10**400, -1]),
    texts,
    st.lists(texts, max_size=3),
    st.none(),
    st.floats(),
)


@given(
    changed=st.dictionaries(st.sampled_from([*asdict(STATUS), "another"]), values, max_size=4),
    signature=texts,
)
def test_fields_of_any_content_are_opened_or_refused(changed: dict[str, object], signature: str) -> None:
    """Also lone surrogates, which JSON can carry and UTF-8 cannot, in a status, its signature and its party."""
    text = json.dumps(asdict(STATUS) | changed, ensure_ascii=False)
    with pytest.raises(Rejection):
        open_status(ROSTER, "fed", json.dumps({"status": text, "signature": signature}).encode())


@pytest.mark.parametrize(
    "wrong",
    [
        {"round": 2**53},
        {"sent_bytes": 10**400},
        {"life": -1},
        {"phase": "x" * 65},
        {"late": ("p",) * 65},
        {"late": ("x" * 65,)},
    ],
    ids=["round", "bytes", "life", "phase", "many late", "long name"],
)
def test_a_member_that_signs_what_no_process_tells_is_refused(wrong: dict[str, Any]) -> None:
    """Numbers that fit nowhere, and texts that would fill a screen."""
    with pytest.raises(Rejection) as refusal:
        open_status(ROSTER, "fed", sign_status(ALICE, "fed", replace(STATUS, **wrong)))
    assert refusal.value.reason is AbortReason.BAD_ENCODING


def test_a_members_terminal_escapes_do_not_reach_the_table_of_statuses(tmp_path: Path) -> None:
    """What a member signs as its phase is shown escaped, and a forgery is counted beside it."""
    loaded = make_federation(tmp_path / "fed", "plain", 2)
    me = load_identity(loaded.key_folder("p1"))
    evil = replace(STATUS, party="p1", phase="\x1b[2J\x1b]0;owned\x07\u202e\n", late=("\x1b[31m",))
    evil = replace(evil, measured=1, metrics={"a\nserver  3/3\x1b[1A": 0.5})
    board = Board()
    for data in (sign_status(me, loaded.federation_id, evil), b'{"status": "\\ud800", "signature": ""}'):
        board.hear(loaded, Datagram("p1", data))
    assert board.statuses["p1"].phase == evil.phase
    shown = describe(loaded, board)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert r"\x1b[2J" in shown
    assert r"a\nserver  3/3\x1b[1A 0.5" in shown
    assert "1 statuses did not verify" in shown


def test_an_older_status_does_not_replace_a_newer_one() -> None:
    """Numbers grow within a life, and lives grow with restarts."""
    board = Board()
    newer = replace(STATUS, life=4, number=1, phase="knocking")
    for status in (STATUS, newer, replace(STATUS, number=99)):
        board.take(status)
    assert board.statuses == {"alice": newer}


def test_a_party_is_behind_only_when_the_server_said_so_a_status_ago(tmp_path: Path) -> None:
    """Whenever a round ends, everyone has told an older one; who stays there is late at the server's next status."""
    loaded, board = make_federation(tmp_path / "fed", "masked", 3), Board()

    def told(party: str, number: int, rounds_done: int) -> None:
        role = "server" if party == "server" else "client"
        board.take(
            replace(STATUS, party=party, role=role, number=number, round=rounds_done, rounds=9, late=())
        )

    told("server", 1, 3)
    for name in loaded.roster.participants:
        told(name, 1, 3)
    told("server", 2, 4)
    assert late_parties(loaded, board) == {}
    told("p1", 2, 4)
    told("p2", 2, 4)
    told("server", 3, 4)
    assert list(late_parties(loaded, board)) == ["p3"]
