"""What a party keeps of a chain: states by their hashes, one vote at a position, and what an anchor makes of both."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState, hash_model
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId

CHAIN, OTHER_CHAIN = bytes(32), bytes([1]) * 32
NAMES = tuple(PartyId(name) for name in "abcde")
MODEL = np.zeros(3, dtype=np.float32)


def state(position: int, mark: float = 0, before: bytes = b"") -> ChainState:
    return ChainState.of(CHAIN, position, before, MODEL + np.float32(mark))


def anchor_at(position: int, held: ChainState | None = None, checkpoint: int = 1) -> Anchor:
    return Anchor(CHAIN, position, (held or state(position)).hash, NAMES, checkpoint)


def ballot(after: ChainState, survivors: tuple[PartyId, ...] = NAMES) -> Ballot:
    return Ballot(after.position, after.before, after.hash, NAMES, survivors)


def vote(after: ChainState, survivors: tuple[PartyId, ...] = NAMES) -> Vote:
    return Vote(ballot(after, survivors), bytes(64))


parts = st.tuples(
    st.sampled_from([CHAIN, OTHER_CHAIN]),
    st.integers(0, 3),
    st.sampled_from([b"", bytes(32), bytes([2]) * 32]),
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0]), max_size=3),
    st.sampled_from([b"", b"\0", b"memory"]),
)


@given(parts, parts)
def test_two_states_have_one_hash_only_if_all_that_they_hold_and_all_before_is_the_same(
    one: tuple[bytes, int, bytes, list[float], bytes], other: tuple[bytes, int, bytes, list[float], bytes]
) -> None:
    """Bit for bit: minus zero is another number."""
    made = []
    for chain, position, before, numbers, memory in (one, other):
        model = np.array(numbers, dtype="<f4")
        made.append((ChainState.of(chain, position, before, model, memory), model.tobytes()))
    same = one[:3] == other[:3] and made[0][1] == made[1][1] and one[4] == other[4]
    assert (made[0][0].hash == made[1][0].hash) == same


def test_the_hashes_are_those_of_the_page() -> None:
    """specs/chain.md, section 1, in so many bytes."""

    def lp(*pieces: bytes) -> bytes:
        return b"".join(len(one).to_bytes(4, "big") + one for one in pieces)

    model = np.array([1.5, -2.0], dtype="<f4")
    of_model = hashlib.sha256(lp(b"veilsum/v8/model") + (2).to_bytes(8, "big") + model.tobytes()).digest()
    assert hash_model(model) == of_model
    framed = lp(
        b"veilsum/v8/state", CHAIN, (7).to_bytes(8, "big"), bytes(32), of_model, hashlib.sha256(b"m").digest()
    )
    assert ChainState.of(CHAIN, 7, bytes(32), model, b"m").hash == hashlib.sha256(framed).digest()


HERE = ChainRecord(2, state(2), anchor=anchor_at(0, checkpoint=0).digest, chain=CHAIN)
AFTER = [state(3, mark) for mark in (1, 2)]
LISTS = [NAMES, NAMES[:4]]
CASTS = list(product(AFTER, LISTS, ["vote", "sealed", "none"]))


@given(st.lists(st.sampled_from(range(len(CASTS))), max_size=8))
def test_whatever_is_asked_for_in_whatever_order_there_is_one_vote_at_a_position(asked: list[int]) -> None:
    """Under one ballot, for one state; what is refused changes nothing, and a vote that was cast is never lost."""
    record, cast, states = HERE, list[Ballot](), set[bytes]()
    for after, survivors, kind in (CASTS[index] for index in asked):
        public = vote(after, survivors)
        sealed = public if kind == "sealed" else None
        if kind == "sealed":
            public = Vote(public.ballot.without_hashes(), bytes(64))
        try:
            record = record.voting(None if kind == "none" else public, sealed, after)
        except Rejection as refused:
            assert refused.reason is AbortReason.POSITION_LOST
            continue
        states.add(after.hash)
        assert record.next_state is after
        cast += [record.vote.ballot] if record.vote is not None else []
        assert record.vote is not None or not cast
    assert len(states) <= 1
    assert all(one.survivors == cast[0].survivors for one in cast)


@pytest.mark.parametrize("sealed", [False, True])
def test_the_same_vote_again_is_no_other_vote(sealed: bool) -> None:
    """Votes for a sum that is repeated add up: the ballot says nothing of the attempt."""
    hidden = vote(AFTER[0]) if sealed else None
    once = HERE.voting(vote(AFTER[0]), hidden, AFTER[0])
    again = once.voting(vote(AFTER[0]), hidden, state(3, 1))
    assert (again.vote, again.sealed_vote) == (once.vote, once.sealed_vote) == (vote(AFTER[0]), hidden)
    with refusal(Rejection, reason=AbortReason.POSITION_LOST):
        once.voting(vote(AFTER[0], NAMES[:4]), hidden, AFTER[0])


VOTED = HERE.voting(vote(AFTER[0]), vote(AFTER[0]), AFTER[0])


def test_an_anchor_that_a_record_is_under_changes_nothing() -> None:
    assert VOTED.under(anchor_at(0, checkpoint=0)) is VOTED


@pytest.mark.parametrize("position", [2, 3, 9])
def test_a_checkpoint_voids_what_was_voted_before_it_and_gives_a_vote_at_it(position: int) -> None:
    """One that is behind keeps the state that it has, until it is given the anchor's."""
    lost = replace(VOTED, votes_here=False, forgetful=True)
    moved = lost.under(anchor_at(position))
    assert (moved.vote, moved.sealed_vote, moved.next_state) == (None, None, None)
    assert (moved.votes_here, moved.forgetful) == (True, False)
    assert (moved.position, moved.state) == (2, lost.state)
    assert moved.anchor == anchor_at(position).digest
    assert moved.voting(vote(AFTER[1]), None, AFTER[1]).next_state is AFTER[1]


def test_a_second_checkpoint_at_one_position_voids_again() -> None:
    first = HERE.under(anchor_at(2)).voting(vote(AFTER[0]), None, AFTER[0])
    second = first.under(anchor_at(2, checkpoint=2))
    assert second.vote is None
    assert second.voting(vote(AFTER[1]), None, AFTER[1]).vote == vote(AFTER[1])


def test_a_server_without_a_model_goes_where_the_checkpoint_is() -> None:
    bare = ChainRecord(2, anchor=HERE.anchor, chain=CHAIN)
    assert bare.under(anchor_at(5)).position == 5


@pytest.mark.parametrize(
    ("anchor", "mentioned"),
    [
        (Anchor(OTHER_CHAIN, 2, state(2).hash, NAMES), "--fresh"),
        (anchor_at(1), "--fresh"),
        (anchor_at(2, state(2, mark=5)), "--fresh"),
    ],
    ids=["another chain", "behind us", "another state where we are"],
)
def test_a_checkpoint_that_does_not_go_on_from_what_we_hold_is_refused_with_a_way_on(
    anchor: Anchor, mentioned: str
) -> None:
    with refusal(LocalProtocolError, mentioned):
        VOTED.under(anchor)


@pytest.mark.parametrize("lost", [False, True])
def test_a_party_begins_with_the_first_model_that_was_signed_or_not_at_all(lost: bool) -> None:
    """One that lost its disk, too: it would claim another state at the anchor, as a liar does."""
    first = ChainRecord(0, state(0), votes_here=not lost, forgetful=lost)
    assert first.under(anchor_at(0)).anchor == anchor_at(0).digest
    signed = state(0, mark=5)
    with refusal(LocalProtocolError, state(0).hash.hex(), signed.hash.hex(), "--init"):
        first.under(anchor_at(0, signed))


@given(st.lists(st.sampled_from(["took part", "was given", "checkpoint"]), max_size=8), st.booleans())
def test_who_has_a_vote_follows_from_how_it_came_to_its_position(steps: list[str], lost: bool) -> None:
    """By a sum with its own update, or by the organiser's word; one that lost its disk has none before either."""
    first = ChainRecord(0, state(0), votes_here=not lost, forgetful=lost)
    record = first.under(Anchor(CHAIN, 0, state(0).hash, NAMES))
    votes, forgetful, checkpoints = not lost, lost, 0
    for step in steps:
        if step == "checkpoint":
            checkpoints += 1
            record = record.under(anchor_at(record.position, record.known_state, checkpoints))
            votes, forgetful = True, False
        else:
            after = state(record.position + 1, before=record.known_state.hash)
            record = record.voting(vote(after) if votes else None, None, after)
            certificate = Certificate(ballot(after), {})
            record = record.advanced(after, certificate, took_part=step == "took part")
            votes, forgetful = step == "took part", forgetful and step != "took part"
            assert (record.vote, record.next_state, record.certificate) == (None, None, certificate)
        assert (record.votes_here, record.forgetful) == (votes, forgetful)
        assert record.chain == CHAIN
