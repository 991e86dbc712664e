"""A result that is passed on again and again, and sums that are not repeated by who lost what it gave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_table import fix_input, input_of, lying_table, messages, told
from tests.support.tables.opened_sums import go_on, opened_to
from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.session import Hello, RoundOpened, SessionOpened, Withdrawn
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.schemes.ampc.passing import VoteAdded
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing.table import honest
from veilsum.simulations.testing.trace import InFlight

LIAR, GONE, VICTIM = PartyId("p1"), PartyId("p4"), PartyId("p4")


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_a_vote_that_is_added_and_never_shown_ends_the_run_after_some_attempts(scheme: str) -> None:
    """The liar adds its vote whenever a result is passed on, and leaves it out of every hello."""
    table = opened_to("p0", "p2", scheme=scheme)
    table.crash(GONE)
    votes: list[bytes] = []

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if flight.sender != LIAR:
            return message
        if isinstance(message, VoteAdded):
            votes.append(message.vote)
        return replace(message, vote=None) if isinstance(message, Hello) else message

    table.tamper = lambda flight: None if isinstance(flight.message, Withdrawn) else tamper(flight)
    table.restart(SERVER)
    answered: set[bytes] = set()
    for _ in range(2000):
        if table.finished:
            break
        flight = table.wire[0] if table.wire else None
        go_on(table)
        if flight is not None and flight.receiver == LIAR and isinstance(flight.message, RoundOpened):
            session = flight.message.stamp.session
            if votes and session not in answered:
                answered.add(session)
                table.inject(LIAR, SERVER, VoteAdded(flight.message.stamp, votes[0]))
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed | RunFinished)
    passed_on = [one for one in messages(table, SessionOpened, SERVER, LIAR) if one.supported is not None]
    assert len(passed_on) <= 5


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
@pytest.mark.parametrize("recovery", Recovery)
def test_who_lost_the_update_that_it_gave_gives_no_second_one(scheme: str, recovery: Recovery) -> None:
    """A lying server opens the sum, shows it to nobody and goes back; the victim lost its disk and trains anew."""
    table = lying_table(scheme, 5, rounds=1, recovery=recovery)
    before = table.disks[SERVER].copy()
    shown: list[InFlight] = []

    def keep_back(flight: InFlight) -> Message | None:
        if not isinstance(flight.message, SumOpened | Aggregate):
            return flight.message
        shown.append(flight)
        return None

    table.tamper = keep_back
    while not shown:
        go_on(table)
    table.crash(SERVER)
    table.crash(VICTIM)
    table.wire.clear()
    lost = PersistentState(0, table.federation.initial_model)
    lost.join_chain(table.federation.roster, forgetful=True)
    table.disks[SERVER], table.disks[VICTIM] = before, lost
    trained = input_of(table, VICTIM, 0)
    fix_input(table, VICTIM, 0, LocalResult((-trained.payload / 2).astype(np.float32), trained.samples))
    table.tamper = honest
    given = len(messages(table, MaskedInput, VICTIM))
    for name in (SERVER, VICTIM):
        table.restart(name)
    table.run()
    assert len(messages(table, MaskedInput, VICTIM)) == given == 1
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.POSITION_LOST
    assert VICTIM in ending.detail
