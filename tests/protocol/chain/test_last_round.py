"""Peers hold the model, the server does not: one that stops in the last round is given the last one by the others."""

from __future__ import annotations

import pytest

from tests.support.refusals import mentions
from tests.support.tables.lying_table import participant, told
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.simulations.testing import Table, check_invariants

PEERS = ("mpc", "ampc")


def started(scheme: str) -> Table:
    table = Table.build(scheme, 4, rounds=1)
    table.start()
    return table


def moments(scheme: str) -> tuple[int, int]:
    """How many messages were delivered when p1 uploaded, and at the end."""
    table, uploaded, count = started(scheme), 0, 0
    while table.wire:
        mine = isinstance(table.wire[0].message, MaskedInput) and table.wire[0].sender == "p1"
        uploaded = count if mine else uploaded
        table.deliver(table.wire[0])
        count += 1
    return uploaded, count


def stopped_at(scheme: str, moment: int) -> Table:
    """p1 stops after so many messages, and comes back at once, alone."""
    table = started(scheme)
    for _ in range(moment):
        table.deliver(table.wire[0])
    table.crash("p1")
    table.restart("p1")
    table.run()
    check_invariants(table)
    return table


def holds_what_all_hold(table: Table) -> bool:
    models = [participant(table, name).model for name in table.participants]
    return len({one.tobytes() for one in models if one is not None}) == 1


@pytest.mark.parametrize("scheme", PEERS)
def test_one_that_is_back_before_the_last_round_ends_is_given_its_result_before_all_part(scheme: str) -> None:
    uploaded, _ = moments(scheme)
    for moment in range(uploaded - 3, uploaded + 4):
        table = stopped_at(scheme, moment)
        ending = told(table, "p1").ending
        assert isinstance(ending, RunFinished), (moment, ending)
        assert holds_what_all_hold(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_one_that_was_too_late_is_given_the_last_model_when_all_resume(scheme: str) -> None:
    """The others had ended when it knocked: it says what helps, and that helps."""
    uploaded, count = moments(scheme)
    late = 0
    for moment in range(uploaded, count):
        table = stopped_at(scheme, moment)
        assert table.server.rounds_done == 1
        ending = told(table, "p1").ending
        if isinstance(ending, RunFinished):
            continue
        assert isinstance(ending, RunFailed)
        assert mentions(ending.detail, "--resume")
        late += 1
        names = [SERVER, *table.participants]
        for name in names:
            table.crash(name)
        table.wire.clear()
        for name in names:
            table.restart(name)
        table.run()
        check_invariants(table)
        assert isinstance(told(table, "p1").ending, RunFinished)
        assert holds_what_all_hold(table)
    assert late
