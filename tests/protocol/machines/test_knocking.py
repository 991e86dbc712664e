"""Who knocks is waited for; who knocks and then says nothing is waited for less and less often."""

from __future__ import annotations

import pytest

from tests.support.tables.lying_table import lying_table, step, told
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import SessionBegan
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.parting import DoneWithout, Guests
from veilsum.protocol.machines.session import Hello, Knock
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing.table import Table

IDLER = PartyId("p4")
ROUNDS = 12


def sessions(table: Table) -> int:
    entries = table.trace.entries
    return sum(one.party == SERVER and isinstance(one.event, SessionBegan) for one in entries)


def knocking_each_round(table: Table) -> Table:
    """The idler knocks whenever a round is committed, and never says hello."""
    table.tamper = lambda flight: (
        None if flight.sender == IDLER and isinstance(flight.message, Hello) else flight.message
    )
    seen = 0
    while not table.finished:
        commits = len(told(table, SERVER).commits)
        if commits > seen:
            seen = commits
            table.inject(IDLER, SERVER, Knock(Stamp()))
        if table.wire:
            step(table)
        elif not table.advance():
            break
    return table


@pytest.mark.parametrize("scheme", ["plain", "masked", "ampc"])
def test_one_that_only_knocks_makes_the_others_wait_a_few_times_and_not_every_round(scheme: str) -> None:
    table = knocking_each_round(lying_table(scheme, 5, rounds=ROUNDS))
    assert len(told(table, SERVER).commits) == ROUNDS
    assert sessions(table) <= 7


def test_one_that_was_not_heard_may_knock_again_after_some_rounds_and_at_once_after_its_hello() -> None:
    federation = lying_table("plain", 5).federation
    rules = federation.rules_for(SERVER)
    guests = Guests(rules, ParticipationRecord(), None, DoneWithout(federation.parameters, None))
    assert guests.may_knock(IDLER, 0)
    for opening in range(3):
        assert not guests.let_pass([IDLER], opening)
    for opening, next_time in ((3, 5), (5, 9), (9, 17)):
        assert guests.let_pass([IDLER], opening) == {IDLER}
        assert [guests.may_knock(IDLER, at) for at in (next_time - 1, next_time)] == [False, True]
    guests.heard(IDLER)
    assert guests.may_knock(IDLER, 0)
