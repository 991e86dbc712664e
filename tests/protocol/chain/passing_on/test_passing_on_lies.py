"""What a lying server could make of results that are passed on: it gets no vote for anything that nobody verified.

Five parties, one of whom may lie: four votes certify, and two bear a ballot. A sum was opened to p0 and p1, who voted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_sessions import opening, proposed_session, session_of
from tests.support.tables.lying_table import lying_table, messages, participant, refuses, say, told, until
from tests.support.tables.opened_sums import opened_to
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, Certificate, SupportedBallot, Vote
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import RoundClosed, RoundOpened, SessionOpened, Withdrawn
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.certifying import SumOpened, SumVote
from veilsum.protocol.secure_sum.passing import ResultPassed
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing import Table

REASON = AbortReason
P0, P1, P2, P3, P4 = (PartyId(f"p{index}") for index in range(5))
HERE = (P0, P1, P2, P3)


def signed(table: Table, ballot: Ballot, *voters: PartyId, anchor: bytes | None = None) -> SupportedBallot:
    """Genuine votes of these for any ballot."""
    known = table.federation.roster.anchor
    assert known is not None
    identities, digest = table.federation.identities, anchor or known.digest
    votes = {name: Vote.cast(identities[name], digest, ballot).signature for name in voters}
    return SupportedBallot(ballot, votes)


def supported(table: Table) -> SupportedBallot:
    """What p0 and p1 really voted for."""
    found = [table.disks[name].chain for name in (P0, P1)]
    votes = [one.vote for one in found if one is not None and one.vote is not None]
    assert len(votes) == 2
    assert votes[0].ballot == votes[1].ballot
    return SupportedBallot(votes[0].ballot, {P0: votes[0].signature, P1: votes[1].signature})


def passed(table: Table, stamp: Stamp) -> ResultPassed:
    """The state that p0 and p1 voted for."""
    chain = table.disks[P0].chain
    assert chain is not None
    assert chain.next_state is not None
    memory = np.frombuffer(chain.next_state.memory, dtype=np.uint8)
    return ResultPassed(stamp, chain.next_state.model, memory)


def false_support(table: Table) -> dict[str, tuple[SupportedBallot, AbortReason]]:
    """Every way to open a session with something else than two votes for the state that follows."""
    honest = supported(table)
    ballot, votes, bad = honest.ballot, dict(honest.signatures), REASON.BAD_CERTIFICATE
    one = {P0: votes[P0]}
    later, past = replace(ballot, position=2), replace(ballot, before=bytes(32))
    fewer = replace(ballot, electorate=HERE)
    nobody = replace(ballot, survivors=())
    return {
        "no votes": (replace(honest, signatures={}), bad),
        "as many as may lie": (replace(honest, signatures=one), bad),
        "a stranger votes": (replace(honest, signatures={**one, PartyId("stranger"): bytes(64)}), bad),
        "a forged vote": (replace(honest, signatures={**one, P1: bytes(64)}), REASON.BAD_SIGNATURE),
        "a forged vote too many": (
            replace(honest, signatures={**votes, P3: bytes(64)}),
            REASON.BAD_SIGNATURE,
        ),
        "one vote twice": (replace(honest, signatures={**one, P1: one[P0]}), REASON.BAD_SIGNATURE),
        "another anchor": (signed(table, ballot, P0, P1, anchor=bytes(32)), REASON.BAD_SIGNATURE),
        "another position": (signed(table, later, P0, P1), bad),
        "another past": (signed(table, past, P0, P1), bad),
        "another electorate": (signed(table, fewer, P0, P1), bad),
        "over nobody": (signed(table, nobody, P0, P1), bad),
    }


LIES = (
    "no votes",
    "as many as may lie",
    "a stranger votes",
    "a forged vote",
    "a forged vote too many",
    "one vote twice",
    "another anchor",
    "another position",
    "another past",
    "another electorate",
    "over nobody",
)


@pytest.mark.parametrize("lie", LIES)
def test_a_session_whose_result_too_few_bear_out_is_entered_by_nobody(lie: str) -> None:
    table = opened_to("p0", "p1")
    opened = proposed_session(table, 7, *HERE)
    false, reason = false_support(table)[lie]
    for name in HERE:
        refuses(table, name, "server", replace(opened, supported=false), reason)
    assert say(table, "server", "p2", replace(opened, supported=supported(table))) is None


@pytest.mark.parametrize("scheme", ["plain", "perturbed", "bilateral"])
def test_where_results_are_not_passed_on_a_session_that_would_is_refused(scheme: str) -> None:
    table = lying_table(scheme, 5)
    opened = until(table, SessionOpened, "p0").message
    assert isinstance(opened, SessionOpened)
    ballot = Ballot(1, b"", b"", table.participants, table.participants)
    false = replace(opened, supported=SupportedBallot(ballot, {}))
    refuses(table, "p0", "server", false, REASON.UNEXPECTED_MESSAGE)


def passing(table: Table, *names: PartyId, false: SupportedBallot | None = None) -> Stamp:
    """A lying server opens a session that passes a result on, and its round, with these parties."""
    opened = replace(proposed_session(table, 7, *HERE), supported=false or supported(table))
    stamp = replace(opened.stamp, model_hash=opening(table, opened.stamp).stamp.model_hash)
    for name in names:
        assert say(table, "server", name, opened) is None
        assert say(table, "server", name, opening(table, stamp)) is None
    return stamp


def votes_of(table: Table, name: PartyId) -> list[SumVote]:
    return messages(table, SumVote, name)


def withdrawn(table: Table, name: PartyId) -> list[str]:
    return [one.reason for one in messages(table, Withdrawn, name)]


@pytest.mark.parametrize("lie", ["another model", "another memory", "another length"])
def test_a_state_that_the_votes_do_not_name_is_refused_and_the_right_one_still_taken(lie: str) -> None:
    table = opened_to("p0", "p1")
    stamp = passing(table, P2)
    right = passed(table, stamp)
    false, reason = {
        "another model": (replace(right, model=right.model + np.float32(1)), REASON.WRONG_MODEL),
        "another memory": (replace(right, memory=np.ones(3, dtype=np.uint8)), REASON.WRONG_MODEL),
        "another length": (replace(right, model=right.model[1:]), REASON.BAD_VECTOR),
    }[lie]
    refuses(table, "p2", "server", false, reason)
    assert not votes_of(table, P2)
    refuses(table, "p2", "p0", right, REASON.UNEXPECTED_MESSAGE)
    assert say(table, "server", "p2", right) is None
    assert len(votes_of(table, P2)) == 1


def test_a_vote_that_leans_on_others_is_on_disk_before_it_leaves_and_is_the_only_one() -> None:
    table = opened_to("p0", "p1")
    stamp = passing(table, P2)
    assert say(table, "server", "p2", passed(table, stamp)) is None
    chain = table.disks[P2].chain
    assert chain is not None
    assert chain.vote is not None
    assert chain.vote.ballot == supported(table).ballot
    assert votes_of(table, P2)[0].signature == chain.vote.signature


def test_a_round_is_not_closed_with_a_state_that_was_not_shown() -> None:
    table = opened_to("p0", "p1")
    stamp, ballot = passing(table, P2), supported(table).ballot
    proof = Certificate(ballot, signed(table, ballot, *HERE).signatures)
    closed = RoundClosed(stamp, True, ballot.survivors, ballot.after, certificate=proof)
    refuses(table, "p2", "server", closed, REASON.UNEXPECTED_MESSAGE)


@pytest.mark.parametrize("lie", ["too few", "another hash", "another list", "none"])
def test_a_result_that_was_passed_on_is_committed_with_its_own_certificate_alone(lie: str) -> None:
    table = opened_to("p0", "p1")
    stamp, ballot = passing(table, P2), supported(table).ballot
    assert say(table, "server", "p2", passed(table, stamp)) is None
    proof = Certificate(ballot, signed(table, ballot, *HERE).signatures)
    honest = RoundClosed(stamp, True, ballot.survivors, ballot.after, certificate=proof)
    closed, reason = {
        "too few": (
            replace(honest, certificate=Certificate(ballot, signed(table, ballot, P0, P1, P2).signatures)),
            REASON.BAD_CERTIFICATE,
        ),
        "another hash": (replace(honest, next_model_hash=bytes(32)), REASON.WRONG_MODEL),
        "another list": (replace(honest, members=HERE), REASON.WRONG_MODEL),
        "none": (replace(honest, certificate=None), REASON.BAD_CERTIFICATE),
    }[lie]
    assert say(table, "server", "p2", closed) is None
    (failure,) = told(table, P2).failures[-1:]
    assert (failure.reason, failure.culprit) == (reason, SERVER)
    assert (participant(table, "p2").rounds_done, table.disks[P2].rounds_done) == (0, 0)


def test_nobody_bears_a_ballot_that_names_it_in_a_sum_which_it_was_not_in() -> None:
    """Two who lie voted for it, more than may: a party still knows better what it did itself."""
    table = opened_to("p0", "p1", absent="p3")
    table.restart("p3")
    table.wire.clear()
    honest = supported(table).ballot
    assert P3 not in honest.survivors
    named = replace(honest, survivors=table.participants)
    stamp = passing(table, P3, false=signed(table, named, P0, P1))
    assert withdrawn(table, P3) == [REASON.SURVIVOR_LIST.value]
    refuses(table, "p3", "server", passed(table, stamp), REASON.UNEXPECTED_MESSAGE)
    assert not votes_of(table, P3)


def test_nobody_bears_a_ballot_over_another_list_than_it_released_for() -> None:
    table = opened_to("p0", "p1")
    other = replace(supported(table).ballot, survivors=HERE)
    passing(table, P2, false=signed(table, other, P0, P1))
    assert withdrawn(table, P2) == [REASON.SURVIVOR_LIST.value]


def test_whoever_voted_otherwise_bears_no_other_ballot() -> None:
    table = opened_to("p0", "p1", "p2")
    chain = table.disks[P2].chain
    assert chain is not None
    assert chain.next_state is not None
    other_model = chain.next_state.model + np.float32(1)
    ballot = replace(supported(table).ballot, after=other_hash(table, other_model))
    stamp = passing(table, P2, false=signed(table, ballot, P0, P1))
    lie = ResultPassed(stamp, other_model, np.zeros(0, dtype=np.uint8))
    assert say(table, "server", "p2", lie) is None
    assert withdrawn(table, P2) == [REASON.POSITION_LOST.value]
    assert table.disks[P2].chain == chain


def other_hash(table: Table, model: Model) -> bytes:
    """The hash of another state at position 1."""
    anchor = table.federation.roster.anchor
    assert anchor is not None
    return ChainState.of(anchor.chain, 1, anchor.state_hash, model).hash


def test_in_a_session_that_passes_a_result_on_nobody_uploads_whatever_it_is_sent() -> None:
    table = opened_to("p0", "p1")
    uploads = len(messages(table, MaskedInput))
    stamp = passing(table, *HERE)
    assert not [one for one in messages(table, RoundKeys) if one.stamp.session == stamp.session]
    keys = CohortKeys(stamp, {}, 0)
    for name in HERE:
        refuses(table, name, "server", keys, REASON.UNEXPECTED_MESSAGE)
        words = np.zeros(4, dtype="<u4")
        refuses(table, name, "server", SumOpened(stamp, HERE, words), REASON.UNEXPECTED_MESSAGE)
    assert len(messages(table, MaskedInput)) == uploads


def test_after_the_one_attempt_its_session_is_over() -> None:
    """Who of the next electorate is fresh must be said anew before anyone uploads among them."""
    table = opened_to("p0", "p1")
    stamp, ballot = passing(table, P2), supported(table).ballot
    assert say(table, "server", "p2", passed(table, stamp)) is None
    proof = Certificate(ballot, signed(table, ballot, *HERE).signatures)
    closed = RoundClosed(stamp, True, ballot.survivors, ballot.after, certificate=proof)
    assert say(table, "server", "p2", closed) is None
    assert participant(table, "p2").rounds_done == 1
    following = RoundOpened(replace(stamp, round=1, model_hash=ballot.after), np.zeros(0, dtype="<f4"))
    refuses(table, "p2", "server", following, REASON.WRONG_SESSION)


def test_a_result_passed_on_to_some_only_gives_the_others_no_leave_to_upload() -> None:
    """p3 is told of an ordinary session with the same id: without p4 it gives its update to no second sum."""
    table = opened_to("p0", "p1")
    stamp = passing(table, P2)
    ordinary = proposed_session(table, 7, *HERE)
    assert ordinary.stamp.session == stamp.session
    assert say(table, "server", "p3", ordinary) is None
    assert say(table, "server", "p3", passed(table, stamp)) is None, "kept, as all that may be early"
    assert not votes_of(table, P3)
    again = session_of(table, 8, *HERE)
    detail = refuses(table, "p3", "server", opening(table, again), REASON.DIFFERENCING)
    assert "p4" in detail


def test_what_was_passed_on_in_vain_leaves_the_rule_of_one_list_as_strict_as_before() -> None:
    """The attempt is in no statement, for nothing was uploaded in it; p4 is still missed."""
    table = opened_to("p0", "p1")
    stamp = passing(table, *HERE)
    closed = RoundClosed(stamp, False, (), b"", REASON.TIMED_OUT.value)
    for name in HERE:
        assert say(table, "server", name, closed) is None
        assert len(table.disks[name].record.attempts_at(0)) == 1
    again = session_of(table, 8, *HERE)
    for name in HERE:
        detail = refuses(table, name, "server", opening(table, again), REASON.DIFFERENCING)
        assert "p4" in detail
