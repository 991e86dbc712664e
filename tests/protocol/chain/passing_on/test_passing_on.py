"""A sum that was opened and found too few votes is not lost with one of its parties: others vote for what it gave.

Five parties, one of whom may lie: four votes certify, and two bear a ballot.
"""

from __future__ import annotations

import pytest

from tests.support.refusals import mentions
from tests.support.tables.lying_table import messages, participant, told
from tests.support.tables.opened_sums import ROUNDS, go_on, opened_to
from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import DecisionMade, RunFailed, RunFinished
from veilsum.protocol.machines.session import RoundClosed, SessionOpened
from veilsum.protocol.schemes.ampc.messages import Aggregate, ModelGiven, ModelHeld, ResultDigest
from veilsum.protocol.schemes.ampc.passing import VoteAdded
from veilsum.protocol.secure_sum.certifying import SumVote
from veilsum.protocol.secure_sum.passing import ResultPassed
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing import Table, check_invariants
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
GIVEN = ResultPassed | ModelGiven


def uploads_in(table: Table, round_number: int) -> list[PartyId]:
    sent = [one for one in table.trace.sent if isinstance(one.message, MaskedInput)]
    return [one.sender for one in sent if one.message.stamp.round == round_number]


def finals(table: Table, *names: str) -> set[bytes]:
    """The models that these ended with, all after the last round."""
    for name in (SERVER, *names):
        ending = told(table, name).ending
        assert isinstance(ending, RunFinished), (name, ending)
        assert ending.rounds == ROUNDS
    found = (participant(table, name).model for name in names)
    return {one.tobytes() for one in found if one is not None}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("in_round", [0, 1])
@pytest.mark.parametrize("cut", [False, True])
def test_after_as_many_votes_as_show_an_honest_one_the_others_go_on_without_the_party_that_is_gone(
    cut: bool, in_round: int, scheme: str
) -> None:
    """Whether the server alone died, or everyone and with them what was in memory."""
    table = opened_to("p0", "p1", scheme=scheme, in_round=in_round)
    table.crash("p4")
    for name in table.participants[:4] if cut else ():
        table.crash(name)
    for name in (SERVER, *(table.participants[:4] if cut else ())):
        table.restart(name)
    table.run()
    check_invariants(table)
    assert len(uploads_in(table, in_round)) == 5, "nobody gave its update again"
    (round_commit,) = [one for one in told(table, SERVER).commits if one.round == in_round]
    assert round_commit.members == table.participants
    assert len(finals(table, *table.participants[:4])) == 1
    committed = {name for name, one in table.trace.commits if one.round == in_round}
    assert committed == {SERVER, *table.participants[:4]}, "who voted for it says that it is done"


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("voters", [2, 5])
@pytest.mark.parametrize("gone", [False, True])
def test_without_recovery_too_the_votes_that_hellos_show_go_on(gone: bool, voters: int, scheme: str) -> None:
    """Two bear the result, and five are its certificate; hellos say who uploaded, where nobody signs a list."""
    names = [f"p{index}" for index in range(5)]
    table = opened_to(*names[:voters], scheme=scheme, recovery=Recovery.NONE)
    if gone:
        table.crash("p4")
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert len(uploads_in(table, 0)) == 5
    assert len(finals(table, *names[: 5 - gone])) == 1


@pytest.mark.parametrize("scheme", SECURE)
def test_in_the_last_round_too_everyone_who_is_there_ends_with_the_last_model(scheme: str) -> None:
    table = opened_to("p0", "p1", scheme=scheme, in_round=ROUNDS - 1)
    table.crash("p4")
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert len(finals(table, *table.participants[:4])) == 1


@pytest.mark.parametrize("scheme", SECURE)
def test_with_everyone_back_the_result_is_passed_on_and_nobody_uploads_again(scheme: str) -> None:
    table = opened_to("p0", "p1", scheme=scheme)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert len(uploads_in(table, 0)) == 5
    assert len(finals(table, *table.participants)) == 1
    receivers = {one.receiver for one in table.trace.sent if isinstance(one.message, GIVEN)}
    assert receivers == {"p2", "p3", "p4"}, "who voted holds the state"


@pytest.mark.parametrize("scheme", SECURE)
def test_with_no_more_votes_than_may_lie_the_position_waits_for_the_party_that_is_gone(scheme: str) -> None:
    """Nothing shows that anyone honest verified the sum."""
    table = opened_to("p0", scheme=scheme)
    table.crash("p4")
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.DIFFERENCING
    assert mentions(ending.detail, "p4")
    assert mentions(ending.detail, "checkpoint")
    assert not messages(table, GIVEN)
    assert len(uploads_in(table, 0)) == 5


@pytest.mark.parametrize("scheme", SECURE)
def test_without_enough_of_those_who_vote_nothing_is_passed_on(scheme: str) -> None:
    table = opened_to("p0", "p1", scheme=scheme)
    for name in ("p3", "p4"):
        table.crash(name)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.NO_QUORUM
    assert not messages(table, GIVEN)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("cut", [False, True])
def test_one_that_was_not_in_the_sum_lends_its_vote_and_has_none_on_the_next_position(
    cut: bool, scheme: str
) -> None:
    """p4 was away, p3 is gone: p4 is of the electorate, and is not named by what it votes for.

    `cut`: the power fails again as all have voted, so that the votes in hellos are the certificate.
    """
    table = opened_to("p0", "p1", scheme=scheme, absent="p4")
    table.crash("p3")
    for name in (SERVER, "p4"):
        table.restart(name)
    if cut:
        while not any(one.committed for one in messages(table, RoundClosed)):
            go_on(table)
        table.wire.clear()
        names = [name for name in table.machines if name != "p3"]
        for name in names:
            table.crash(name)
        for name in names:
            table.restart(name)
    while participant(table, "p4").rounds_done < 1:
        go_on(table)
    record = table.disks[PartyId("p4")].chain
    assert record is not None
    assert (record.position, record.votes_here) == (1, False)
    table.run()
    check_invariants(table)
    assert told(table, SERVER).commits[0].members == table.participants[:4]
    assert "p4" not in uploads_in(table, 0)
    assert len(finals(table, "p0", "p1", "p2", "p4")) == 1


def lose_disk(table: Table, name: PartyId) -> None:
    """The party knows that it may have taken part before, and nothing else."""
    table.crash(name)
    blank = PersistentState(0, table.federation.initial_model)
    blank.join_chain(table.federation.roster, forgetful=True)
    table.disks[name] = blank


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("in_round", [0, 1])
@pytest.mark.parametrize("gone", [False, True])
def test_one_that_lost_its_disk_is_given_the_state_and_lends_no_vote(
    in_round: int, gone: bool, scheme: str
) -> None:
    """With it three have a vote, and four are needed; without another that is gone it goes along, with no vote yet."""
    table = opened_to("p0", "p1", scheme=scheme, in_round=in_round)
    lose_disk(table, PartyId("p3"))
    if gone:
        table.crash("p4")
    for name in (SERVER, "p3"):
        table.restart(name)
    before = votes_by(table, "p3")
    while participant(table, "p3").rounds_done <= in_round and not table.finished:
        go_on(table)
    assert votes_by(table, "p3") == before
    record = table.disks[PartyId("p3")].chain
    assert record is not None
    assert not record.votes_here
    table.run()
    check_invariants(table)
    if not gone:
        assert len(finals(table, *table.participants)) == 1
        return
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.NO_QUORUM


def votes_by(table: Table, name: str) -> int:
    """How many votes this party has sent anyone."""
    signed = [one for one in messages(table, SumVote, name) if one.signature]
    digests = [one for one in messages(table, ResultDigest, name, SERVER) if one.vote]
    return len([*signed, *digests, *messages(table, VoteAdded, name)])


@pytest.mark.parametrize("scheme", SECURE)
def test_a_result_is_passed_on_by_as_many_sessions_as_it_takes(scheme: str) -> None:
    """The server stops again before the others have voted; what was voted stays."""
    table = opened_to("p0", "p1", scheme=scheme)
    table.crash("p4")
    table.restart(SERVER)
    while not any(votes_by(table, name) for name in ("p2", "p3")):
        go_on(table)
    table.crash(SERVER)
    table.wire.clear()
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    passing = {one.stamp.session for one in messages(table, SessionOpened) if one.supported is not None}
    assert len(passing) == 2
    assert len(finals(table, *table.participants[:4])) == 1


def cut_off(scheme: str, *gone: str) -> Table:
    """The server heard four votes of five and committed; no peer heard another. Then it stops, and these are lost."""
    table = Table.build(scheme, 5, rounds=ROUNDS)

    def tamper(flight: InFlight) -> Message | None:
        among_peers = isinstance(flight.message, ResultDigest) and flight.receiver != SERVER
        kept_back = isinstance(flight.message, Aggregate) and flight.receiver == "p3"
        return None if (among_peers or kept_back) and not flight.message.stamp.round else flight.message

    table.tamper = tamper
    table.start()
    while not table.trace.commits:
        go_on(table)
    assert {name for name, _ in table.trace.commits} == {SERVER}
    for name in (SERVER, *gone):
        table.crash(name)
    table.wire.clear()
    table.tamper = lambda flight: flight.message
    table.restart(SERVER)
    return table


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_what_the_server_knows_to_be_certified_peers_prove_with_votes_that_lean_on_others(
    scheme: str,
) -> None:
    """p4 voted and is gone; p3 did not vote. The certificate without hashes says which sum, and not which model."""
    table = cut_off(scheme, "p4")
    table.run()
    check_invariants(table)
    assert len(uploads_in(table, 0)) == 5
    assert len(finals(table, *table.participants[:4])) == 1
    record = table.disks[PartyId("p3")].chain
    assert record is not None
    assert record.votes_here, "it was in the sum, by its own disk"


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_a_vote_in_the_set_up_is_on_disk_before_it_is_stated(scheme: str) -> None:
    table = cut_off(scheme, "p4")
    while not any(one.stamp.round == 1 for one in messages(table, ModelHeld, "p3")):
        go_on(table)
    stated = next(
        one.number
        for one in table.trace.sent
        if isinstance(one.message, ModelHeld) and one.sender == "p3" and one.message.stamp.round == 1
    )
    (vote,) = [
        one
        for one in table.trace.entries
        if isinstance(one.event, DecisionMade)
        and isinstance(one.event.decision, VoteCast)
        and one.party == "p3"
    ]
    assert vote.number < stated


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_peers_without_enough_who_vote_cannot_prove_which_model_is_certified(scheme: str) -> None:
    """p3 lost its disk, and with it its vote: three votes stay three."""
    table = cut_off(scheme, "p4")
    lose_disk(table, PartyId("p3"))
    table.restart("p3")
    table.run()
    check_invariants(table)
    assert isinstance(told(table, SERVER).ending, RunFailed)
    assert {name for name, _ in table.trace.commits} == {SERVER}
