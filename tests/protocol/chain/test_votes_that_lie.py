"""Votes and certificates that are not what they say: none of them makes a state, and no two states are certified."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.support.tables.lying_sessions import proposed_session
from tests.support.tables.lying_table import (
    lying_table,
    messages,
    participant,
    refuses,
    say,
    step,
    told,
    until,
)
from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.chain.member import ChainMember, ChainTerms, GivenState
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote, require_certificate
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.rules import StartingPoint
from veilsum.protocol.machines.session import Hello, RoundClosed, SessionTerms
from veilsum.protocol.schemes.ampc.messages import ResultDigest
from veilsum.protocol.secure_sum.certifying import SumVote
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
P0, P1, P2, P3 = (PartyId(f"p{index}") for index in range(4))


def vote_of(table: Table, name: PartyId, ballot: Ballot, chain: bytes | None = None) -> bytes:
    """The signature of a party under any ballot of any chain."""
    anchor = table.federation.roster.anchor
    assert anchor is not None
    return Vote.cast(table.federation.identities[name], chain or anchor.digest, ballot).signature


@pytest.mark.parametrize("lie", ["forged", "of another", "another state", "twice", "not in the sum"])
def test_a_vote_that_its_author_cannot_have_cast_does_not_count(lie: str) -> None:
    table = lying_table("masked", 6)
    table.tamper = lambda flight: (
        None if type(flight.message).__name__ == "MaskedInput" and flight.sender == "p5" else flight.message
    )
    flight = until(table, SumVote, sender="p0")
    honest = flight.message
    assert isinstance(honest, SumVote)
    (theirs,) = messages(table, SumVote, "p1") or [until(table, SumVote, sender="p1").message]
    if lie == "twice":
        table.drop(flight)
        table.deliver(table.inject("p0", "server", honest))
    sender, message, reason = {
        "forged": ("p0", replace(honest, signature=bytes(64)), REASON.BAD_SIGNATURE),
        "of another": ("p0", replace(honest, signature=theirs.signature), REASON.BAD_SIGNATURE),
        "another state": ("p0", replace(honest, state_hash=bytes(32)), REASON.WRONG_MODEL),
        "twice": ("p0", honest, REASON.REPLAY),
        "not in the sum": ("p5", honest, REASON.SURVIVOR_LIST),
    }[lie]
    refuses(table, "server", sender, message, reason)
    table.run()
    assert told(table, SERVER).commits[0].members == table.participants[:5]


def certificates(table: Table, honest: Certificate) -> dict[str, tuple[Certificate | None, AbortReason]]:
    """Every way to close a round of five with something else than four votes for the state that p0 checked."""
    ballot, votes = honest.ballot, dict(honest.signatures)
    three = {name: votes[name] for name in sorted(votes)[:3]}

    def by_all(other: Ballot, chain: bytes | None = None) -> Certificate:
        return Certificate(other, {name: vote_of(table, name, other, chain) for name in table.participants})

    def swapped(signatures: Mapping[PartyId, bytes]) -> Certificate:
        return Certificate(ballot, {**signatures})

    later = replace(ballot, position=ballot.position + 1)
    fewer = replace(ballot, electorate=(P0, P1, P2))
    bad = REASON.BAD_CERTIFICATE
    return {
        "none": (None, bad),
        "too few": (swapped(three), bad),
        "no votes": (swapped({}), bad),
        "a stranger votes": (swapped({**three, PartyId("stranger"): bytes(64)}), bad),
        "a forged vote": (swapped({**three, P3: bytes(64)}), REASON.BAD_SIGNATURE),
        "one vote twice": (swapped({**three, P3: three[P0]}), REASON.BAD_SIGNATURE),
        "another chain": (by_all(ballot, bytes(32)), REASON.BAD_SIGNATURE),
        "another position": (by_all(later), bad),
        "votes of another position": (swapped(by_all(later).signatures), REASON.BAD_SIGNATURE),
        "another state": (by_all(replace(ballot, after=bytes(32))), bad),
        "another past": (by_all(replace(ballot, before=bytes(32))), bad),
        "fewer electors": (by_all(fewer), bad),
        "another list": (by_all(replace(ballot, survivors=(P0, P1, P2, P3))), bad),
    }


LIES = (
    "none",
    "too few",
    "no votes",
    "a stranger votes",
    "a forged vote",
    "one vote twice",
    "another chain",
    "another position",
    "votes of another position",
    "another state",
    "another past",
    "fewer electors",
    "another list",
)


@pytest.mark.parametrize("lie", LIES)
def test_a_round_closed_with_a_false_certificate_is_committed_by_nobody_who_hears_it(lie: str) -> None:
    """Even if every signature in it is genuine: it must be for the very state that p0 computed."""
    table = lying_table("masked", 5)
    honest = until(table, RoundClosed, "p0").message
    assert isinstance(honest, RoundClosed)
    assert honest.certificate is not None
    certificate, reason = certificates(table, honest.certificate)[lie]
    assert say(table, "server", "p0", replace(honest, certificate=certificate)) is None
    (failure,) = told(table, P0).failures
    assert (failure.reason, failure.culprit) == (reason, SERVER)
    assert not told(table, P0).commits
    assert (participant(table, "p0").rounds_done, table.disks[P0].rounds_done) == (0, 0)


def committed_once(scheme: str) -> tuple[Table, Certificate]:
    """Everyone holds position 1 and what proves it, and round 1 is about to begin; p4 took no part."""
    table = lying_table(scheme, 5, rounds=3, absent=["p4"])
    while any(participant(table, name).rounds_done < 1 for name in table.participants[:4]):
        until(table, Message)
        step(table)
    table.wire.clear()
    table.restart("p4")
    table.wire.clear()
    chain = participant(table, "p0")._chain
    assert chain is not None
    assert chain.record.certificate is not None
    return table, chain.record.certificate


def stripped(certificate: Certificate) -> Certificate:
    return replace(certificate, signatures=dict(list(certificate.signatures.items())[:3]))


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["none", "stripped", "far", "forged"])
def test_a_session_beyond_our_position_begins_with_its_certificate_or_not_at_all(
    scheme: str, lie: str
) -> None:
    """p4 is at position 0; the others prove position 1, and nothing less gets p4 there."""
    table, honest = committed_once(scheme)
    opened = proposed_session(table, 7, *table.participants, position=1, certificate=honest)
    terms = SessionTerms(table.federation.roster, table.federation.parameters, bytes([7]) * 32)
    far = Stamp(terms.open(opened.hellos, 2**40).id, 2**40, 7)
    message, reason = {
        "none": (replace(opened, certificate=None), REASON.BAD_CERTIFICATE),
        "stripped": (replace(opened, certificate=stripped(honest)), REASON.BAD_CERTIFICATE),
        "far": (replace(opened, stamp=far), REASON.BAD_CERTIFICATE),
        "forged": (
            replace(
                opened, certificate=replace(honest, signatures=dict.fromkeys(honest.signatures, bytes(64)))
            ),
            REASON.BAD_SIGNATURE,
        ),
    }[lie]
    refuses(table, "p4", "server", message, reason)
    assert participant(table, "p4").rounds_done == 0
    assert say(table, "server", "p4", opened) is None


@pytest.mark.parametrize("scheme", SECURE)
def test_a_certificate_that_was_good_once_is_not_good_with_fewer_votes_later(scheme: str) -> None:
    """p4 would keep it, show it, and be turned away by everyone."""
    table, honest = committed_once(scheme)
    opened = proposed_session(table, 7, *table.participants, position=1, certificate=honest)
    assert say(table, "server", "p4", opened) is None
    again = proposed_session(table, 8, *table.participants, position=1, certificate=stripped(honest))
    refuses(table, "p4", "server", again, REASON.BAD_CERTIFICATE)


@pytest.mark.parametrize("scheme", SECURE)
def test_nobody_goes_back_to_a_position_that_it_left(scheme: str) -> None:
    """A model that stands still is a session at a position whose successor is certified."""
    table, _ = committed_once(scheme)
    opened = proposed_session(table, 7, *table.participants, position=0)
    for name in table.participants:
        detail = refuses(table, name, "server", opened, REASON.REPLAY)
        assert "p0 holds 1" in detail


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["without a certificate", "stripped", "another chain"])
def test_a_hello_that_proves_nothing_is_refused_by_name_and_the_others_go_on(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5, rounds=3)

    def change(hello: Hello) -> Hello:
        if hello.certificate is None:
            return hello
        ballot = hello.certificate.ballot
        foreign = {name: vote_of(table, name, ballot, bytes(32)) for name in hello.certificate.signatures}
        certificate = {
            "without a certificate": None,
            "stripped": stripped(hello.certificate),
            "another chain": Certificate(ballot, foreign),
        }[lie]
        return replace(hello, certificate=certificate)

    table.tamper = telling(Hello, "p0", change)
    while participant(table, "p0").rounds_done < 1:
        until(table, Message)
        step(table)
    table.crash("p0")
    table.restart("p0")
    table.run()
    refused = {(one.error.culprit, one.error.reason) for one in table.trace.refusals}
    assert (P0, REASON.BAD_SIGNATURE if lie == "another chain" else REASON.BAD_CERTIFICATE) in refused
    endings = [told(table, name).ending for name in (SERVER, *table.participants[1:])]
    assert all(isinstance(ending, RunFinished) and ending.rounds == 3 for ending in endings)


def telling(
    kind: type[Hello], sender: str, change: Callable[[Hello], Hello]
) -> Callable[[InFlight], Message]:
    def tamper(flight: InFlight) -> Message:
        message = flight.message
        return change(message) if isinstance(message, kind) and flight.sender == sender else message

    return tamper


def test_a_server_that_keeps_the_certificate_from_some_leaves_nobody_with_another_state() -> None:
    """They voted, so that they have the state: the next session says that their vote was won."""
    table = lying_table("masked", 5, rounds=2)
    table.tamper = lambda flight: (
        None
        if isinstance(flight.message, RoundClosed)
        and flight.message.stamp.round == 0
        and flight.receiver in (P0, P1)
        else flight.message
    )
    table.run()
    finals = {
        one.tobytes()
        for one in (participant(table, name).model for name in table.participants)
        if one is not None
    }
    assert len(finals) == 1
    assert all(told(table, name).commits for name in table.participants)


@pytest.mark.parametrize("scheme", SECURE)
def test_whoever_voted_for_one_state_votes_for_no_other_at_its_position(scheme: str) -> None:
    """The vote is on disk before it leaves, and outlives the party's process."""
    table = lying_table(scheme, 5)
    until(table, SumVote if scheme == "masked" else ResultDigest, sender="p0")
    record = table.disks[P0].chain
    assert record is not None
    assert record.next_state is not None
    assert record.vote is not None
    other = replace(record.next_state, hash=bytes(32))
    with pytest.raises(Rejection, match="voted otherwise") as refusal:
        record.voting(record.vote, None, other)
    assert refusal.value.reason is REASON.POSITION_LOST


def test_what_was_voted_on_before_a_checkpoint_counts_for_nothing_after_it() -> None:
    """A server that kept a certificate back cannot show it beside the one of the position opened anew: no fork."""
    table = lying_table("masked", 6, rounds=1)
    table.run()
    shown = next(
        closed.certificate for closed in messages(table, RoundClosed) if closed.certificate is not None
    )
    federation = table.federation
    before = federation.roster.anchor
    assert before is not None
    after = Anchor(before.chain, 0, before.state_hash, before.electorate[:5])
    require_certificate(before.digest, federation.roster, federation.parameters, shown)
    with pytest.raises(Rejection) as refused:
        require_certificate(after.digest, federation.roster, federation.parameters, shown)
    assert refused.value.reason is AbortReason.BAD_SIGNATURE


def test_a_party_that_lost_its_disk_has_no_vote_at_the_anchor_until_it_was_in_a_sum_again() -> None:
    """Under a checkpoint it may have voted before it lost its disk: being given the state there changes nothing."""
    federation = lying_table("masked", 6).federation
    anchor = federation.roster.anchor
    assert anchor is not None
    chain, model = anchor.chain, federation.initial_model
    third = ChainState.of(chain, 3, bytes(32), model)
    moved = replace(federation.roster, anchor=Anchor(chain, 3, third.hash, anchor.electorate))
    terms = ChainTerms.of(moved, federation.parameters, certifies=True)
    lost = StartingPoint(model, forgetful=True).chain_record(moved)
    member = ChainMember(terms, lost, lambda held, memory, mean, position: (held, memory))
    given = GivenState(3, bytes(32), model, b"", third.hash)
    adopted = member.adopted(None, given, took_part=False)
    assert (adopted.position, adopted.votes_here, adopted.forgetful) == (3, False, True)
    fourth = adopted.advanced(ChainState.of(chain, 4, third.hash, model), None, took_part=True)
    assert (fourth.votes_here, fourth.forgetful) == (True, False)


def test_nothing_before_the_anchor_is_adopted() -> None:
    """The organiser moved the beginning: what a server shows of positions before it is certified by nobody."""
    federation = lying_table("masked", 6).federation
    anchor = federation.roster.anchor
    assert anchor is not None
    moved = replace(federation.roster, anchor=Anchor(anchor.chain, 5, bytes(32), anchor.electorate))
    terms = ChainTerms.of(moved, federation.parameters, certifies=True)
    member = ChainMember(terms, ChainRecord(0), lambda held, memory, mean, position: (held, memory))
    invented = Certificate(Ballot(3, b"", bytes(32), anchor.electorate, anchor.electorate), {})
    for shown in (None, invented):
        with pytest.raises(Rejection) as refused:
            member.adopted(shown, GivenState(3, b"", federation.initial_model, b""), took_part=False)
        assert refused.value.reason is AbortReason.REPLAY
        with pytest.raises(Rejection) as refused:
            member.consider_session(3, shown, frozenset())
        assert refused.value.reason is AbortReason.REPLAY
