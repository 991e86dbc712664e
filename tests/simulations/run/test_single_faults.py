"""One fault at every possible moment: instead of sampling, every message of a run is the one at which it happens.

An undisturbed run delivers its messages in order. Here each of them, one run after the other, is delivered
twice, lost, late, or the last one before somebody crashes. The long suite plays two rounds and every message; the
default one plays one round and, where runs are costly, takes every few messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.examples import ballot
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFinished
from veilsum.simulations.testing import InFlight, Table, check_invariants

RECOVERING = ["plain", "masked", "mpc", "ampc", "perturbed", "bilateral"]
SCHEMES = [*RECOVERING, ballot.Ballot.name]
LENGTHS = [1, pytest.param(2, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
STRIDES = {"plain": 2, "ballot": 2, "masked": 5, "mpc": 30, "ampc": 15, "perturbed": 5, "bilateral": 5}

Fault = Callable[[Table, InFlight], None]


def deliver_twice(table: Table, flight: InFlight) -> None:
    copied = table.duplicate(flight)
    table.deliver(flight)
    table.deliver(copied)


def repeat_at_the_end(table: Table, flight: InFlight) -> None:
    table.deliver(flight)
    table.hold(table.duplicate(flight))


def lose(table: Table, flight: InFlight) -> None:
    table.drop(flight)


def keep_back(table: Table, flight: InFlight) -> None:
    table.hold(flight)


def crash_receiver(table: Table, flight: InFlight) -> None:
    table.deliver(flight)
    table.crash(flight.receiver)


def restart_receiver(table: Table, flight: InFlight) -> None:
    table.deliver(flight)
    table.crash(flight.receiver)
    table.restart(flight.receiver)


def restart_server(table: Table, flight: InFlight) -> None:
    table.deliver(flight)
    table.crash(SERVER)
    table.restart(SERVER)


def runs_with(scheme: str, rounds: int, fault: Fault) -> list[tuple[InFlight, Table]]:
    """For each message of a run: a run with the fault at that message, up to its end."""
    runs = []
    for index in itertools.count(step=1 if rounds > 1 else STRIDES.get(scheme, 1)):
        table = Table.build(scheme, rounds=rounds)
        table.start()
        for _ in range(index):
            table.deliver(table.wire[0])
            if not table.wire:
                return runs
        flight = table.wire[0]
        fault(table, flight)
        check_invariants(table)
        table.run()
        for kept in list(table.held):
            table.release(kept)
        table.deliver_all()
        check_invariants(table)
        runs.append((flight, table))
    raise AssertionError("a run without an end")


@pytest.mark.parametrize("rounds", LENGTHS)
@pytest.mark.parametrize("fault", [deliver_twice, repeat_at_the_end])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_repeated_message_changes_nothing(scheme: str, fault: Fault, rounds: int) -> None:
    for flight, table in runs_with(scheme, rounds, fault):
        committed = sorted((name, one.round) for name, one in table.trace.commits)
        assert committed == list(itertools.product(sorted(table.machines), range(rounds))), flight
        assert {one.members for _, one in table.trace.commits} == {table.participants}
        assert not table.trace.failures, flight


@pytest.mark.parametrize("rounds", LENGTHS)
@pytest.mark.parametrize("scheme", RECOVERING)
def test_a_participant_may_crash_after_any_message(scheme: str, rounds: int) -> None:
    for flight, table in runs_with(scheme, rounds, crash_receiver):
        if flight.receiver != SERVER:
            assert table.server.rounds_done == rounds, flight
            endings = table.trace.endings
            assert all(isinstance(endings[name], RunFinished) for name in table.present), flight


@pytest.mark.parametrize("rounds", LENGTHS)
@pytest.mark.parametrize("fault", [lose, keep_back, restart_receiver, restart_server])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_run_with_one_fault_ends_and_keeps_the_invariants(
    scheme: str, fault: Fault, rounds: int
) -> None:
    """Whatever it ends with; that the invariants hold is checked on the way."""
    runs = runs_with(scheme, rounds, fault)
    assert all(set(table.present) <= table.trace.endings.keys() for _, table in runs)
    assert len(runs) >= 4
