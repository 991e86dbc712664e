"""Where a session may begin: what certificates and hellos prove to a server, and what a participant takes from it.

Five parties, of whom one may collude: four votes are a certificate.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from tests.support.tables.lying_table import party_names
from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.chain import member as member_module
from veilsum.protocol.chain.hellos import HelloRecord, hello_parts
from veilsum.protocol.chain.keeper import ChainKeeper
from veilsum.protocol.chain.member import ChainMember, ChainTerms, GivenState
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.statements import EnteredAttempt
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.simulations.testing import Table
from veilsum.simulations.testing.federation import TableFederation

REASON = AbortReason
NAMES = tuple(party_names(5))
ENOUGH = 4


@cache
def federation() -> TableFederation:
    return Table.build("masked", NAMES).federation


@cache
def anchor() -> Anchor:
    found = federation().roster.anchor
    assert found is not None
    return found


def terms_of(*, certifies: bool = True, moved_to: Anchor | None = None) -> ChainTerms:
    roster = federation().roster
    roster = roster if moved_to is None else replace(roster, anchor=moved_to)
    return ChainTerms.of(roster, federation().parameters, certifies=certifies)


def state(position: int, mark: float = 0, memory: bytes = b"") -> ChainState:
    before = bytes([position]) * 32 if position else b""
    return ChainState.of(anchor().chain, position, before, first_model() + np.float32(mark), memory)


def first_model() -> Model:
    return federation().initial_model


def record_at(position: int, *, held: bool = True) -> ChainRecord:
    proof = certificate(position) if position else None
    here = state(position) if held else None
    return ChainRecord(position, here, proof, anchor=anchor().digest, chain=anchor().chain)


def ballot(position: int, mark: float = 0, survivors: tuple[PartyId, ...] = NAMES) -> Ballot:
    after = state(position, mark)
    return Ballot(position, after.before, after.hash, NAMES, survivors)


def vote(name: PartyId, on: Ballot) -> Vote:
    return Vote.cast(federation().identities[name], anchor().digest, on)


def certificate(
    position: int, mark: float = 0, names: tuple[PartyId, ...] = NAMES, survivors: tuple[PartyId, ...] = NAMES
) -> Certificate:
    on = ballot(position, mark, survivors)
    return Certificate(on, {name: vote(name, on).signature for name in names})


def keep(model: Model, memory: bytes, mean: object, position: int) -> tuple[Model, bytes]:
    return model, memory


def member_of(record: ChainRecord, terms: ChainTerms | None = None) -> ChainMember:
    return ChainMember(terms or terms_of(), record, keep)


def keeper_of(record: ChainRecord, terms: ChainTerms | None = None) -> ChainKeeper:
    return ChainKeeper(terms or terms_of(), record, keep)


SUBSETS = [names for size in range(6) for names in combinations(NAMES, size)]


@pytest.mark.parametrize("position", [0, 1])
def test_a_session_is_entered_exactly_if_enough_of_those_who_vote_there_are_in_it(position: int) -> None:
    """All thirty-two subsets: at the anchor its electorate counts, later the survivors of the certificate."""
    for voting in SUBSETS:
        member = member_of(record_at(position))
        if len(voting) >= ENOUGH:
            member.consider_session(position, None, voting)
            continue
        with refusal(Rejection, *set(NAMES).difference(voting), reason=REASON.NO_QUORUM):
            member.consider_session(position, None, voting)
        assert member.ahead is None


def test_the_electorate_of_a_later_position_are_the_survivors_of_its_certificate() -> None:
    """Four survived: three of them are too few, and the fifth counts for nothing."""
    proof = certificate(1, survivors=NAMES[:4])
    terms = terms_of()
    assert terms.electorate(1, proof) == NAMES[:4]
    assert terms.electorate(0, None) == anchor().electorate == NAMES
    assert terms.missing_voters(1, proof, (*NAMES[:2], NAMES[4])) == NAMES[2:4]
    needed = federation().parameters.threshold_of(4)
    assert terms.missing_voters(1, proof, NAMES[:needed]) == ()
    with refusal(LocalProtocolError, "1"):
        terms.electorate(1, None)
    with refusal(LocalProtocolError, "2"):
        terms.electorate(2, proof)


def test_nobody_votes_where_the_organiser_has_moved_the_beginning_past() -> None:
    moved = terms_of(moved_to=Anchor(anchor().chain, 3, state(3).hash, NAMES, 1))
    assert moved.electorate(2, certificate(2)) == ()
    with refusal(Rejection, reason=REASON.REPLAY):
        moved.require_reached(2)
    moved.require_reached(3)


def test_a_certificate_is_verified_once_and_another_one_for_the_same_ballot_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verified = []
    monkeypatch.setattr(member_module, "require_certificate", lambda *given: verified.append(given[-1]))
    terms = terms_of()
    many = [certificate(1), certificate(1, names=NAMES[:4]), certificate(1)]
    for one in many:
        terms.verify(one)
    assert verified == many[:2]
    for position in range(2, 40):
        terms.verify(certificate(position))
    assert len(terms._verified) <= 8


def test_our_vote_that_was_won_while_we_were_away_is_ours_with_its_state() -> None:
    after = state(1, 1)
    voted = record_at(0).voting(vote(NAMES[0], ballot(1, 1)), None, after)
    member = member_of(voted)
    member.consider_session(1, certificate(1, 1), NAMES)
    won = member.won(1, certificate(1, 1), took_part=True)
    assert won is not None
    assert (won.position, won.known_state, won.votes_here) == (1, after, True)
    assert member.ahead is None
    assert member.record is voted, "the machine decides when it is kept"


def test_a_certificate_for_another_state_than_we_voted_for_leaves_us_behind_it() -> None:
    voted = record_at(0).voting(vote(NAMES[0], ballot(1, 1)), None, state(1, 1))
    member = member_of(voted)
    other = certificate(1, 2)
    member.consider_session(1, other, NAMES)
    assert member.won(1, other, took_part=True) is None
    assert member.ahead == other
    with refusal(Rejection, reason=REASON.BAD_CERTIFICATE):
        member.won(1, certificate(1, 1, names=NAMES[:3]), took_part=True)


def test_a_state_is_taken_over_if_it_is_the_certified_one_bit_for_bit() -> None:
    held = state(1)
    given = GivenState(1, held.before, held.model, b"", held.hash)
    member = member_of(record_at(0))
    for took_part in (True, False):
        found = member.adopted(certificate(1), given, took_part=took_part)
        assert (found.known_state.hash, found.votes_here) == (held.hash, took_part)
    assert member.adopted(certificate(1), replace(given, claimed=b""), took_part=False).position == 1
    lies = [
        replace(given, model=held.model + np.float32(1)),
        replace(given, memory=b"\0"),
        replace(given, before=bytes(32)),
        replace(given, claimed=bytes(32)),
    ]
    for lie in lies:
        with refusal(Rejection, reason=REASON.WRONG_MODEL):
            member.adopted(certificate(1), lie, took_part=True)
    for shown in (None, certificate(2), certificate(1, names=NAMES[:3])):
        with refusal(Rejection, reason=REASON.BAD_CERTIFICATE):
            member.adopted(shown, given, took_part=True)
    with refusal(Rejection, reason=REASON.WRONG_MODEL):
        member.adopted(certificate(1, 1), given, took_part=True)
    assert member.record.position == 0


@pytest.mark.parametrize("forgetful", [False, True])
def test_at_the_anchor_the_state_is_the_organisers_and_gives_a_vote_to_who_lost_nothing(
    forgetful: bool,
) -> None:
    third = state(3)
    terms = terms_of(moved_to=Anchor(anchor().chain, 3, third.hash, NAMES, 1))
    record = replace(record_at(0), forgetful=forgetful, votes_here=not forgetful)
    member = member_of(record, terms)
    given = GivenState(3, third.before, third.model, b"")
    assert member.adopted(None, given, took_part=False).votes_here is not forgetful
    with refusal(Rejection, reason=REASON.WRONG_MODEL):
        member.adopted(None, replace(given, model=third.model + np.float32(1)), took_part=True)


def test_where_nobody_votes_the_hash_that_the_server_names_is_all_there_is() -> None:
    held = state(4)
    member = member_of(record_at(0), terms_of(certifies=False))
    given = GivenState(4, held.before, held.model, b"", held.hash)
    assert member.adopted(None, given, took_part=False).known_state.hash == held.hash
    with refusal(Rejection, reason=REASON.WRONG_MODEL):
        member.adopted(None, replace(given, claimed=bytes(32)), took_part=False)
    member.consider_session(9, None, ())


def test_a_round_begins_at_our_position_from_our_state() -> None:
    member = member_of(record_at(1))
    member.require_position(1)
    member.require_state(state(1).hash)
    for position in (0, 2):
        with refusal(Rejection, reason=REASON.WRONG_ROUND):
            member.require_position(position)
    with refusal(Rejection, reason=REASON.WRONG_MODEL):
        member.require_state(state(1, 1).hash)


def test_a_vote_that_was_cast_in_an_attempt_is_the_members_whatever_becomes_of_the_attempt() -> None:
    member = member_of(record_at(0))
    point, after = member.point(), state(1, 1)
    point.cast(vote(NAMES[0], ballot(1, 1)), None, after)
    assert member.record.next_state is after
    with refusal(Rejection, reason=REASON.POSITION_LOST):
        member.point().cast(vote(NAMES[0], ballot(1, 2)), None, state(1, 2))


# The server's side.


@given(st.permutations(NAMES), st.integers(0, 5))
def test_open_votes_of_hellos_make_a_certificate_in_whatever_order_they_come(
    order: list[PartyId], heard: int
) -> None:
    """One that came twice is one, and nothing is certified before there are enough."""
    keeper, on = keeper_of(record_at(0, held=False)), ballot(1)
    for name in [*order[:heard], *order[:heard]]:
        keeper.admit(name, 0, None, vote(name, on))
    found = keeper.certified()
    assert (found is not None) == (heard >= ENOUGH)
    assert keeper.newest_position() == (heard >= ENOUGH)
    if found is not None:
        assert set(found.signatures) == set(order[:heard])
        terms_of().verify(found)
    keeper.forget_votes()
    assert keeper.certified() is None


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([1, 2]), st.booleans()), max_size=12))
def test_votes_for_different_states_or_lists_never_add_up(cast: list[tuple[PartyId, int, bool]]) -> None:
    keeper = keeper_of(record_at(0, held=False))
    voters: dict[tuple[int, bool], set[PartyId]] = {}
    for name, mark, fewer in cast:
        keeper.admit(name, 0, None, vote(name, ballot(1, mark, NAMES[:4] if fewer else NAMES)))
        voters.setdefault((mark, fewer), set()).add(name)
    enough = any(len(names) >= ENOUGH for names in voters.values())
    assert (keeper.certified() is not None) == enough


def test_a_hello_that_proves_nothing_changes_nothing_at_the_server() -> None:
    keeper = keeper_of(record_at(0, held=False))
    on, name = ballot(1), NAMES[0]
    bad: list[tuple[int, Certificate | None, Vote | None]] = [
        (1, None, None),
        (2, certificate(1), None),
        (1, certificate(1, names=NAMES[:3]), None),
        (0, None, vote(name, ballot(2))),
        (0, None, vote(name, replace(on, electorate=NAMES[:4]))),
        (1, certificate(1), vote(name, on)),
    ]
    for position, proof, cast in bad:
        with refusal(Rejection, reason=REASON.BAD_CERTIFICATE):
            keeper.admit(name, position, proof, cast)
    with refusal(Rejection, reason=REASON.BAD_SIGNATURE):
        keeper.admit(name, 0, None, vote(NAMES[1], on))
    assert keeper.certified() is None
    assert keeper.newest_position() == 0


def test_the_session_begins_at_the_newest_position_that_is_proved() -> None:
    """Where peers hold the model, the server goes there by the certificate alone."""
    keeper = keeper_of(record_at(0, held=False), terms_of())
    keeper.terms.hides_hashes = True
    for name, position in zip(NAMES, [1, 3, 0, 2, 3], strict=True):
        keeper.admit(name, position, certificate(position) if position else None, None)
    assert keeper.newest_position() == 3
    reached = keeper.caught_up()
    assert reached is not None
    assert (reached.position, reached.certificate, reached.state) == (3, certificate(3), None)
    keeper.record = reached
    assert keeper.caught_up() is None


def test_where_nobody_votes_a_server_takes_in_no_claim() -> None:
    keeper = keeper_of(record_at(0), terms_of(certifies=False))
    keeper.admit(NAMES[0], 10**6, None, None)
    assert keeper.newest_position() == 0
    assert keeper.missing_voters(()) == ()


# Hellos.


def hello(
    rounds_done: int, *, fresh: bool = False, uploaded: bool | None = None, number: int = 0
) -> HelloRecord:
    attempts = () if uploaded is None else (EnteredAttempt(bytes(32), number, NAMES, uploaded),)
    return HelloRecord(bytes(32), bytes(32), rounds_done, bytes(64), fresh, attempts)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("uploaded", [None, False, True])
@pytest.mark.parametrize("rounds_done", [3, 4, 5, 6])
def test_a_hello_has_a_vote_where_it_stands_unless_fresh_or_one_further_if_it_uploaded(
    rounds_done: int, uploaded: bool | None, fresh: bool
) -> None:
    """specs/chain.md, section 3, at position 5."""
    said = hello(rounds_done, fresh=fresh, uploaded=uploaded)
    expected = not fresh if rounds_done == 5 else rounds_done == 4 and uploaded is True
    assert said.votes_at(5) is expected


@pytest.mark.parametrize("uploaded", [None, True])
@pytest.mark.parametrize("rounds_done", [4, 5])
def test_a_hello_of_another_position_without_an_attempt_cannot_be_told_from_a_lost_disk(
    rounds_done: int, uploaded: bool | None
) -> None:
    said = hello(rounds_done, uploaded=uploaded).statement(NAMES[0], 5)
    assert said.fresh == (rounds_done != 5 and uploaded is None)
    assert bool(said.attempts) == (rounds_done == 5 and uploaded is True)
    assert hello(rounds_done, fresh=True).statement(NAMES[0], 5).fresh


names = st.lists(st.sampled_from(NAMES), max_size=3).map(tuple)
attempts = st.builds(
    EnteredAttempt,
    st.sampled_from([bytes(32), bytes([1]) * 32]),
    st.integers(0, 2),
    names,
    st.booleans(),
    names,
)
hellos = st.builds(
    HelloRecord,
    st.just(bytes(32)),
    st.just(bytes(32)),
    st.integers(0, 2),
    st.just(bytes(64)),
    st.booleans(),
    st.lists(attempts, max_size=2).map(tuple),
)


@given(hellos, hellos)
def test_what_a_hello_signs_says_all_that_it_says(one: HelloRecord, other: HelloRecord) -> None:
    """Two hellos that differ in a word are two messages for a signature, and for the id of a session."""
    assert (hello_parts(one) == hello_parts(other)) == (one == other)


def test_a_vote_of_a_key_that_is_no_longer_enrolled_counts_for_nothing_and_the_others_are_enough() -> None:
    """Whoever has new keys keeps its place in the electorate: of four votes one fewer certifies nothing."""
    whole = certificate(1, 1)
    of_another_key = vote(NAMES[1], whole.ballot).signature
    stale = replace(whole, signatures={**whole.signatures, NAMES[0]: of_another_key})
    terms_of().verify(stale)
    few = replace(stale, signatures={name: stale.signatures[name] for name in NAMES[:ENOUGH]})
    with refusal(Rejection, reason=REASON.BAD_SIGNATURE):
        terms_of().verify(few)
