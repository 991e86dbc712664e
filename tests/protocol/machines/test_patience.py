"""Too few parties in the middle of a run are waited for as at its beginning: as long as the server's patience lasts."""

from __future__ import annotations

import pytest

from tests.support.refusals import mentions
from tests.support.tables.lying_table import lying_table, messages, participant, told
from veilsum.protocol.agreed.parameters import Timing
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.session import Invitation, SessionOpened
from veilsum.simulations.testing import Table, check_invariants

SCHEMES = ("plain", "mpc", "ampc", "masked", "bilateral")
TIMING = Timing(opening_s=4, phase_s=4, training_s=4, patience_s=60)
"""Deadlines so short that an outage of ten seconds is longer than each of them."""


def after_one_round(scheme: str) -> Table:
    table = lying_table(scheme, 4, rounds=3, timing=TIMING)
    while table.server.rounds_done < 1:
        table.deliver(table.wire[0])
    return table


def pass_time(table: Table, seconds: float) -> None:
    """What those who are left say to each other meanwhile."""
    until = table.now + seconds
    while table.now < until:
        table.deliver_all()
        assert table.advance(), "everyone has given up"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("gone", [4, 3, 2])
def test_parties_that_come_back_within_the_patience_end_the_run_as_if_they_had_stayed(
    scheme: str, gone: int
) -> None:
    table = after_one_round(scheme)
    absent = table.participants[4 - gone :]
    for name in absent:
        table.crash(name)
    pass_time(table, 30)
    assert told(table, SERVER).ending is None
    for name in absent:
        table.restart(name)
    table.run()
    check_invariants(table)
    for name in (SERVER, *table.participants):
        assert isinstance(told(table, name).ending, RunFinished), (name, told(table, name))
    assert table.server.rounds_done == 3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_network_that_carries_nothing_for_a_while_ends_no_run(scheme: str) -> None:
    """Whatever anybody says is lost, for longer than a phase takes."""
    table = after_one_round(scheme)
    table.wire.clear()
    table.tamper = lambda flight: None
    pass_time(table, 10)
    table.tamper = lambda flight: flight.message
    table.run()
    for name in (SERVER, *table.participants):
        assert isinstance(told(table, name).ending, RunFinished), (name, told(table, name))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_when_the_patience_ends_the_last_line_says_who_was_missing_and_for_how_long(scheme: str) -> None:
    table = after_one_round(scheme)
    for name in table.participants[1:]:
        table.crash(name)
    table.run()
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason in (AbortReason.COHORT_TOO_SMALL, AbortReason.NO_QUORUM)
    for name in table.participants[1:]:
        assert mentions(ending.detail, name)
    waited = float(ending.detail.split("waited for ")[1].split(" s")[0])
    assert TIMING.patience_s <= waited <= TIMING.patience_s + TIMING.opening_s
    stayed = told(table, table.participants[0]).ending
    assert isinstance(stayed, RunFailed)
    assert stayed.detail == ending.detail


def test_those_who_stay_are_invited_anew_and_stay_in_step_with_the_server() -> None:
    """Each opening has an invitation of its own, or who answered one that is over would miss the session."""
    table = after_one_round("masked")
    for name in table.participants[2:]:
        table.crash(name)
    before = len(messages(table, SessionOpened))
    pass_time(table, 30)
    nonces = [one.nonce for one in messages(table, Invitation, receiver=table.participants[0])]
    assert len(set(nonces)) >= 5
    assert len(messages(table, SessionOpened)) == before, "no session begins with too few"
    assert participant(table, table.participants[0]).rounds_done == 1


def test_nobody_is_waited_for_where_all_are_there_and_cannot_go_on() -> None:
    """All forgot: more of them will not come."""
    table = lying_table("masked", 4, rounds=3, timing=TIMING)
    while table.server.rounds_done < 1:
        table.deliver(table.wire[0])
    table.run()
    names = (SERVER, *table.participants)
    for name in names:
        table.crash(name)
    fresh = lying_table("masked", 4, rounds=3, timing=TIMING)
    for name in names:
        table.disks[name] = fresh.disks[name].copy()
        table.disks[name].join_chain(table.federation.roster, forgetful=True)
    table.wire.clear()
    began = table.now
    for name in names:
        table.restart(name)
    table.run()
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.NO_QUORUM
    assert table.now <= began + TIMING.opening_s
