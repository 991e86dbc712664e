"""A server of `masked` that lost its folder, or has an older one, is given the state back by the parties.

Five parties, one of whom may lie: four votes certify, and two bear a ballot.
"""

from __future__ import annotations

import pytest

from tests.support.refusals import mentions
from tests.support.tables.lying_table import participant, told, until
from tests.support.tables.opened_sums import ROUNDS, opened_to
from veilsum.protocol.chain.asking import StateGiven, StateWanted
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.session import Hello, RoundOpened, SessionOpened
from veilsum.protocol.secure_sum.certifying import SumVote
from veilsum.protocol.secure_sum.passing import ResultPassed
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing import Table, check_invariants

NOTHING = PersistentState(0, None)


def started(rounds: int = ROUNDS) -> Table:
    table = Table.build("masked", 5, rounds=rounds)
    table.start()
    return table


def back_with(table: Table, disk: PersistentState) -> None:
    """The server is gone and comes back with another folder; what it said before is lost with it."""
    table.crash(SERVER)
    table.wire = [flight for flight in table.wire if flight.sender != SERVER]
    table.disks[SERVER] = disk.copy()
    table.restart(SERVER)


def finals(table: Table) -> set[bytes]:
    """The models that all ended with, after the last round."""
    for name in (SERVER, *table.participants):
        ending = told(table, name).ending
        assert isinstance(ending, RunFinished), (name, ending)
        assert ending.rounds == table.server.rounds_done
    found = [table.server.model, *(participant(table, name).model for name in table.participants)]
    return {one.tobytes() for one in found if one is not None}


def undisturbed(rounds: int = ROUNDS) -> set[bytes]:
    return finals(started(rounds).run())


def given_by(table: Table) -> list[PartyId]:
    return [one.sender for one in table.trace.sent if isinstance(one.message, StateGiven)]


def first_model_alone(table: Table) -> PersistentState:
    return PersistentState(0, table.federation.initial_model)


@pytest.mark.parametrize("kind", [MaskedInput, SumVote, RoundOpened])
@pytest.mark.parametrize("in_round", [1, 2])
@pytest.mark.parametrize("empty", [False, True])
def test_a_server_that_lost_its_folder_is_given_the_certified_state_and_the_run_ends_as_without_the_loss(
    empty: bool, in_round: int, kind: type[Message]
) -> None:
    """Whether it still has the first model or nothing at all; asked is one party, and it is enough."""
    table = started()
    while until(table, kind).message.stamp.round < in_round:
        table.deliver(table.wire[0])
    back_with(table, NOTHING if empty else first_model_alone(table))
    table.run()
    check_invariants(table)
    assert finals(table) == undisturbed()
    assert len(given_by(table)) == 1


@pytest.mark.parametrize("age", [1, 2])
def test_a_server_with_an_older_folder_goes_on_from_the_newest_certified_state(age: int) -> None:
    table = started()
    older: dict[int, PersistentState] = {}
    while table.server.rounds_done < 2 or not isinstance(table.wire[0].message, MaskedInput):
        table.deliver(table.wire[0])
        older.setdefault(table.disks[SERVER].rounds_done, table.disks[SERVER].copy())
    back_with(table, older[2 - age])
    table.run()
    check_invariants(table)
    assert finals(table) == undisturbed()
    assert given_by(table) == ["p0"]


def test_a_server_that_never_had_a_model_is_given_the_one_that_the_organiser_signed() -> None:
    """No server need make the first model: its hash is in the roster, and every party holds it."""
    table = Table.build("masked", 5, rounds=ROUNDS)
    table.crash(SERVER)
    table.disks[SERVER] = NOTHING.copy()
    for name in table.present:
        table.machines[name].start(table.now)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert finals(table) == undisturbed()
    assert given_by(table) == ["p0"]


def test_after_the_last_round_the_server_is_given_the_last_state_and_gives_it_to_whoever_lacks_it() -> None:
    """The run was over; p4 was away for its last round."""
    table = started()
    while table.server.rounds_done < 2:
        table.deliver(table.wire[0])
    table.crash("p4")
    table.run()
    held = {table.server.model.tobytes()} if table.server.model is not None else set()
    for name in table.present:
        table.crash(name)
    table.disks[SERVER] = NOTHING.copy()
    table.wire.clear()
    for name in (SERVER, *table.participants):
        table.restart(name)
    table.run()
    assert finals(table) == held
    assert table.server.rounds_done == ROUNDS


@pytest.mark.parametrize("voters", [2, 4])
def test_a_result_that_votes_bear_is_given_to_the_server_too_and_goes_on_without_the_party_that_is_gone(
    voters: int,
) -> None:
    """Two votes bear it, and the server passes it on; four certify it."""
    table = opened_to(*(f"p{number}" for number in range(voters)))
    table.crash("p4")
    table.disks[SERVER] = NOTHING.copy()
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    for name in (SERVER, "p0", "p1", "p2", "p3"):
        assert isinstance(told(table, name).ending, RunFinished)
    uploads = [one for one in table.trace.sent if isinstance(one.message, MaskedInput)]
    assert len([one for one in uploads if one.message.stamp.round == 0]) == 5, "nobody gave its update again"
    passed = {one.receiver for one in table.trace.sent if isinstance(one.message, ResultPassed)}
    assert passed == ({"p2", "p3"} if voters == 2 else set())


def test_where_nobody_gives_the_state_that_votes_bear_the_same_parties_open_the_sum_again() -> None:
    """p0 and p1 voted; what they hold does not arrive."""
    table = opened_to("p0", "p1")
    table.disks[SERVER] = first_model_alone(table)
    table.tamper = lambda flight: None if isinstance(flight.message, StateGiven) else flight.message
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert len(finals(table)) == 1
    again = [one for one in table.trace.sent if isinstance(one.message, MaskedInput)]
    assert len([one for one in again if one.message.stamp.round == 0]) == 10


def test_one_that_is_silent_costs_its_turn_and_no_more() -> None:
    table = started()
    table.tamper = lambda flight: (
        None if flight.sender in ("p0", "p1") and isinstance(flight.message, StateGiven) else flight.message
    )
    until(table, MaskedInput)
    while table.server.rounds_done < 1:
        table.deliver(table.wire[0])
    back_with(table, NOTHING)
    table.run()
    assert finals(table) == undisturbed()
    assert given_by(table) == ["p0", "p1", "p2"]


def test_a_server_that_nobody_gives_the_state_says_whom_it_asked_and_what_can_be_done() -> None:
    table = started()
    table.tamper = lambda flight: None if isinstance(flight.message, StateGiven) else flight.message
    while table.server.rounds_done < 1:
        table.deliver(table.wire[0])
    back_with(table, first_model_alone(table))
    table.run()
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.WRONG_MODEL
    for name in ("p0", "p4", "--new-chain", "waited"):
        assert mentions(ending.detail, name)
    assert table.disks[SERVER].rounds_done == 0, "nothing was taken over"
    assert {told(table, name).ending.__class__ for name in table.participants} == {RunFailed}


def test_at_every_moment_of_a_run_a_server_that_loses_its_folder_costs_no_committed_round() -> None:
    """Every ninth message; a position that only the same parties may repeat is repeated by them: all are here."""
    moments = len(started(2).run().trace.sent)
    for moment in range(12, moments, 9):
        table = started(2)
        for _ in range(moment):
            if table.wire:
                table.deliver(table.wire[0])
        if table.finished:
            break
        most = max(one.rounds_done for one in table.disks.values())
        back_with(table, NOTHING)
        table.run()
        check_invariants(table)
        assert finals(table) == undisturbed(2), moment
        assert table.server.rounds_done >= most


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("in_round", [0, 1])
def test_a_list_that_shares_were_released_for_is_kept_to_although_the_server_forgot_it(
    in_round: int, gone: bool
) -> None:
    """p4 was left out of the sum; it is back, or gone. The statements of the others have the server's own signature."""
    table = started()
    while table.server.rounds_done < in_round:
        table.deliver(table.wire[0])
    table.crash_before("p4", MaskedInput)
    for sender in ("p0", "p1", "p2", "p3"):
        table.drop(until(table, ReleasedShares, sender=sender))
    back_with(table, NOTHING)
    if not gone:
        table.restart("p4")
    table.run()
    check_invariants(table)
    (again,) = [one for one in told(table, "p0").commits if one.round == in_round]
    assert again.members == ("p0", "p1", "p2", "p3")
    assert isinstance(told(table, SERVER).ending, RunFinished), told(table, SERVER).ending


def test_nobody_is_asked_where_peers_hold_the_model() -> None:
    table = Table.build("ampc", 5, rounds=ROUNDS)
    table.start()
    while table.server.rounds_done < 1:
        table.deliver(table.wire[0])
    back_with(table, NOTHING)
    table.run()
    assert isinstance(told(table, SERVER).ending, RunFinished)
    assert not [one for one in table.trace.sent if isinstance(one.message, StateWanted | StateGiven)]
    assert [one for one in table.trace.sent if isinstance(one.message, Hello | SessionOpened)]
