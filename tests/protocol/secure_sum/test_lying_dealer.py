"""A dealer of two group keys, and a server that touches the boxes: no upload leaves before all hold one key.

Of seven parties two may collude, and five must agree.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.tables.lying_table import (
    lying_table,
    messages,
    participant,
    reasons,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.crypto.kdf import Purpose
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId, SessionId
from veilsum.protocol.machines.events import RunFinished, SessionBegan
from veilsum.protocol.schemes.masked.messages import CohortKeys
from veilsum.protocol.schemes.masked.round import MaskedRound
from veilsum.protocol.secure_sum.group_key import GroupKeyDealt, GroupKeyDelivered, dealer_of
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing import check_invariants
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

REASON = AbortReason
PARTIES, ROUNDS, ENOUGH = 7, 2, 5


class TwoKeys:
    """The dealer of the first session deals some of the others another key, whenever it deals."""

    def __init__(self, table: Table, fooled: int) -> None:
        self.table = table
        self.fooled = fooled
        self.dealer = ""
        self.others: tuple[PartyId, ...] = ()
        table.tamper = self._tamper

    def _tamper(self, flight: InFlight) -> Message | None:
        message, sender = flight.message, flight.sender
        if not isinstance(message, GroupKeyDealt) or sender != (self.dealer or sender):
            return message
        self.dealer, self.others = sender, tuple(sorted(message.boxes))[: self.fooled]
        context = participant(self.table, sender)._context(message.stamp)
        stamp = message.stamp.without_model()
        keys = {name: context.box_secret(Purpose.GROUP_KEY, stamp, sender, name) for name in self.others}
        # A liar seals twice under one key: not through the seam whose every use is watched.
        another = {
            name: AESGCM(key.reveal()).encrypt(bytes(12), bytes(32), b"") for name, key in keys.items()
        }
        return replace(message, boxes={**message.boxes, **another})


def finished(table: Table, names: Collection[str]) -> bool:
    endings = [told(table, name).ending for name in (SERVER, *names)]
    return all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings)


@pytest.mark.parametrize("fooled", [1, PARTIES - ENOUGH, 3, 4, 5, 6])
def test_a_dealer_of_two_keys_costs_no_round_and_gets_no_upload(fooled: int) -> None:
    """The fewer are left out of the next attempt if enough hold one key, or the dealer, or both; all are back later."""
    table = lying_table("masked", PARTIES, rounds=ROUNDS)
    lie = TwoKeys(table, fooled)
    table.run()
    first = told(table, SERVER).failures[0]
    assert first.reason is REASON.BAD_KEY
    assert not [
        one for one in messages(table, MaskedInput) if one.stamp.attempt == 0 and one.stamp.round == 0
    ]
    fewer, most = sorted((set(lie.others), set(table.participants) - set(lie.others)), key=len)
    left_out = fewer if len(most) >= ENOUGH else {lie.dealer}
    left_out |= {lie.dealer} if PARTIES - len(fewer | {lie.dealer}) >= ENOUGH else set()
    assert set(told(table, SERVER).commits[0].members) == set(table.participants) - left_out
    assert finished(table, table.participants)
    check_invariants(table)


@pytest.mark.parametrize("fooled", [1, 3, 6])
def test_a_server_that_hides_that_keys_differ_gets_no_upload_either(
    fooled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of the key is in what each of the others signed: all of both groups refuse, and nobody goes on."""
    monkeypatch.setattr(MaskedRound, "_divided", lambda _: None)
    table = lying_table("masked", PARTIES, rounds=ROUNDS)
    TwoKeys(table, fooled)
    until(table, CohortKeys)
    shown = messages(table, CohortKeys)[0].stamp
    table.deliver_all()
    refused = {
        (one.party, one.error.reason, one.error.culprit)
        for one in table.trace.refusals
        if isinstance(one.message, CohortKeys) and one.message.stamp == shown
    }
    assert refused == {(name, REASON.BAD_KEY, SERVER) for name in table.participants}
    assert not [one for one in messages(table, MaskedInput) if one.stamp == shown]


def touched(table: Table, lie: str, victim: str) -> None:
    """The server does this to the box of the victim, in the first session alone."""
    kept: dict[str, bytes] = {}

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, GroupKeyDelivered) or message.stamp.attempt > 0:
            return message
        kept[flight.receiver] = message.box
        if flight.receiver != victim:
            return message
        foreign = next((box for name, box in kept.items() if name != victim), bytes(len(message.box)))
        return {
            "swapped": replace(message, box=foreign),
            "altered": replace(message, box=bytes([message.box[0] ^ 1]) + message.box[1:]),
            "of its own": replace(message, box=bytes(len(message.box))),
            "short": replace(message, box=message.box[:8]),
            "withheld": None,
        }[lie]

    table.tamper = tamper


@pytest.mark.parametrize("lie", ["swapped", "altered", "of its own", "short", "withheld"])
def test_a_box_that_the_server_touched_is_no_key_and_costs_no_round(lie: str) -> None:
    table = lying_table("masked", PARTIES, rounds=ROUNDS)
    *others, victim = table.participants
    touched(table, lie, victim)
    table.run()
    assert reasons(table, victim) == (set() if lie == "withheld" else {REASON.BAD_SEAL})
    assert {one.members for one in told(table, SERVER).commits} == {tuple(others)}
    assert not messages(table, MaskedInput, victim)
    assert finished(table, table.participants)


@pytest.mark.parametrize("lie", ["not the dealer", "a box too few", "a stranger's box", "a box for itself"])
def test_the_server_passes_on_a_box_of_the_dealer_for_each_other_member(lie: str) -> None:
    table = lying_table("masked", PARTIES)
    flight = until(table, GroupKeyDealt)
    dealt, dealer = flight.message, flight.sender
    assert isinstance(dealt, GroupKeyDealt)
    assert dealer == dealer_of(SessionId(dealt.stamp.session), table.participants)
    other, *_ = sorted(dealt.boxes)
    sender, boxes, reason = {
        "not the dealer": (other, dealt.boxes, REASON.UNEXPECTED_MESSAGE),
        "a box too few": (
            dealer,
            {name: box for name, box in dealt.boxes.items() if name != other},
            REASON.BAD_SEAL,
        ),
        "a stranger's box": (dealer, {**dealt.boxes, PartyId("stranger"): bytes(48)}, REASON.BAD_SEAL),
        "a box for itself": (dealer, {**dealt.boxes, dealer: bytes(48)}, REASON.BAD_SEAL),
    }[lie]
    refuses(table, SERVER, sender, replace(dealt, boxes=boxes), reason)
    assert not messages(table, GroupKeyDelivered)
    table.run()
    assert told(table, SERVER).commits[0].members == table.participants


def test_a_group_key_comes_from_the_server_alone_and_changes_nothing_for_its_dealer() -> None:
    table = lying_table("masked", PARTIES)
    flight = until(table, GroupKeyDelivered)
    dealer = next(one.sender for one in table.trace.sent if isinstance(one.message, GroupKeyDealt))
    peer = next(name for name in table.participants if name not in (dealer, flight.receiver))
    refuses(table, flight.receiver, peer, flight.message, REASON.UNEXPECTED_MESSAGE)
    own = participant(table, dealer).secrets
    assert say(table, SERVER, dealer, flight.message) is None
    assert participant(table, dealer).secrets is own
    table.run()
    assert told(table, SERVER).commits[0].members == table.participants


@pytest.mark.parametrize("lie", ["withheld", "that nobody can open"])
def test_a_dealer_of_no_key_is_left_out_of_the_next_session_and_costs_no_round(lie: str) -> None:
    """Whichever session it is drawn in; of four parties three must stay."""
    told_in: list[bytes] = []

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, GroupKeyDealt) or flight.sender != "p0":
            return message
        told_in.append(message.stamp.session)
        boxes = {name: bytes(len(box)) for name, box in message.boxes.items()}
        return None if lie == "withheld" else replace(message, boxes=boxes)

    for seed in range(6):
        table = lying_table("masked", 4, rounds=ROUNDS, seed=seed)
        table.tamper = tamper
        table.run()
        sessions = [
            one.event
            for one in table.trace.entries
            if one.party == SERVER and isinstance(one.event, SessionBegan)
        ]
        following = [after for before, after in pairwise(sessions) if before.session in told_in]
        assert all("p0" not in session.members for session in following)
        assert len(told(table, SERVER).commits) == ROUNDS
    assert told_in, "the liar was never drawn"
