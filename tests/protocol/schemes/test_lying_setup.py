"""A peer of AMPC or MPC that spoils a session's set-up: the others commit every round, and no honest one is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.tables.lying_table import (
    attempt_of,
    hold,
    lying_table,
    messages,
    party_names,
    refuses,
    step,
    told,
    until,
)
from veilsum.protocol.crypto.sealing import seal
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import PartyNamed, RunFinished
from veilsum.protocol.machines.session import RoundOpened, Withdrawn
from veilsum.protocol.schemes.ampc.messages import (
    SEEDS_DOMAIN,
    ModelGiven,
    ModelHeld,
    SealedRecord,
    SeedsForNeighbour,
    SetupReport,
    seal_label,
    sealed_digest,
)
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

PEERS = ("mpc", "ampc")
LIAR, VICTIM = PartyId("p1"), PartyId("p2")
ROUNDS = 2

Lie = Callable[[Table, InFlight], Message | None]


def named(table: Table) -> set[PartyId]:
    return {entry.event.party for entry in table.trace.entries if isinstance(entry.event, PartyNamed)}


def withheld(kind: type[Message], *receivers: str) -> Lie:
    def lie(table: Table, flight: InFlight) -> Message | None:
        hit = isinstance(flight.message, kind) and flight.receiver in (receivers or party_names(9))
        return None if hit else flight.message

    return lie


def another_hash(*receivers: str) -> Lie:
    def lie(table: Table, flight: InFlight) -> Message | None:
        message = flight.message
        hit = isinstance(message, ModelHeld) and flight.receiver in (receivers or party_names(9))
        return replace(message, keyed_hash=bytes(32)) if hit else message  # type: ignore[call-arg]

    return lie


def unreadable(table: Table, flight: InFlight) -> Message | None:
    message = flight.message
    return replace(message, proof=bytes(64)) if isinstance(message, ModelHeld) else message


def other_secrets(*receivers: str) -> Lie:
    """These are given another common secret than the rest, properly sealed and signed."""

    def lie(table: Table, flight: InFlight) -> Message | None:
        message, receiver = flight.message, flight.receiver
        if not isinstance(message, SeedsForNeighbour) or receiver not in receivers:
            return message
        machine: Any = attempt_of(table, LIAR)
        label = seal_label(message.stamp, LIAR, receiver)
        identities = table.federation.identities
        rsa = identities[receiver].public.rsa
        assert rsa is not None
        ciphertext = seal(rsa, machine._given[receiver].reveal() + bytes(32), label, SeededEntropy(3))
        signature = identities[LIAR].signing.sign(SEEDS_DOMAIN, sealed_digest(label, ciphertext))
        return replace(message, sealed=SealedRecord(ciphertext, signature))

    return lie


def leaves(table: Table, flight: InFlight) -> Message | None:
    message = flight.message
    return Withdrawn(message.stamp, "x") if isinstance(message, SetupReport) else message


def reports(**fields: Any) -> Lie:
    def lie(table: Table, flight: InFlight) -> Message | None:
        message = flight.message
        return SetupReport(message.stamp, **fields) if isinstance(message, SetupReport) else message

    return lie


def spoiled(scheme: str, lie: Lie, parties: int = 5, **fields: Any) -> Table:
    """A run in which one peer lies in every set-up that it is in."""
    table = lying_table(scheme, parties, rounds=ROUNDS, **fields)
    table.tamper = lambda flight: lie(table, flight) if flight.sender == LIAR else flight.message
    return table.run()


def others_go_on(table: Table) -> None:
    """Everyone but the liar ends well with the last model, and none of them is named."""
    assert len(told(table, SERVER).commits) == ROUNDS
    endings = {name: told(table, name).ending for name in table.participants if name != LIAR}
    assert all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings.values())
    assert named(table) <= {LIAR}


FALSE_TO_MANY: dict[str, Lie] = {
    "another state claimed to all": another_hash(),
    "two common secrets, each for several": other_secrets("p0", "p2"),
}


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", FALSE_TO_MANY)
def test_a_peer_that_more_saw_lying_than_may_collude_is_named(scheme: str, lie: str) -> None:
    table = spoiled(scheme, FALSE_TO_MANY[lie])
    others_go_on(table)
    assert named(table) == {LIAR}
    honest = tuple(name for name in table.participants if name != LIAR)
    assert {commit.members for commit in told(table, SERVER).commits} == {honest}


LOST_FOR_MANY: dict[str, Lie] = {
    "seeds withheld from all": withheld(SeedsForNeighbour),
    "statement withheld from all": withheld(ModelHeld),
    "statements that cannot be read": unreadable,
    "seeds withheld from two": withheld(SeedsForNeighbour, "p0", "p3"),
}


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", LOST_FOR_MANY)
def test_a_peer_whose_part_did_not_come_is_left_out_and_not_named_since_a_broker_can_lose_it(
    scheme: str, lie: str
) -> None:
    table = spoiled(scheme, LOST_FOR_MANY[lie])
    others_go_on(table)
    assert not named(table)
    assert all(LIAR not in commit.members for commit in told(table, SERVER).commits)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("kind", [SeedsForNeighbour, ModelHeld])
def test_a_peer_that_a_broker_cut_off_from_many_for_a_while_is_back_in_the_next_round(
    scheme: str, kind: type[Message]
) -> None:
    table = lying_table(scheme, 6, rounds=3)
    first = until(table, kind).message.stamp.session

    def broker(flight: InFlight) -> Message | None:
        lost = isinstance(flight.message, kind) and flight.message.stamp.session == first
        cut_off = flight.sender == LIAR and flight.receiver in ("p2", "p3", "p4")
        return None if lost and cut_off else flight.message

    table.wire = [flight for flight in table.wire if broker(flight) is not None]
    table.tamper = broker
    table.run()
    assert not named(table)
    commits = told(table, SERVER).commits
    assert LIAR not in commits[0].members
    assert all(LIAR in commit.members for commit in commits[1:])
    assert all(isinstance(told(table, name).ending, RunFinished) for name in table.participants)


SEEN_BY_ONE: dict[str, Lie] = {
    "seeds withheld": withheld(SeedsForNeighbour, VICTIM),
    "statement withheld": withheld(ModelHeld, VICTIM),
    "another state claimed": another_hash(VICTIM),
    "another common secret": other_secrets(VICTIM),
    "accused in vain": reports(lacking=(VICTIM,)),
    "waited for in vain": reports(waiting=(VICTIM,)),
    "behind and accusing": reports(behind=True, lacking=(VICTIM,)),
}


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("parties", [5, 7])
@pytest.mark.parametrize("lie", SEEN_BY_ONE)
def test_one_against_one_costs_attempts_and_no_round(scheme: str, parties: int, lie: str) -> None:
    """With seven both are left out, with five only one can be done without; the others commit either way."""
    table = spoiled(scheme, SEEN_BY_ONE[lie], parties)
    assert len(told(table, SERVER).commits) == ROUNDS
    assert not named(table)
    for name in set(table.participants) - {LIAR, VICTIM}:
        assert [commit.round for commit in told(table, name).commits] == list(range(ROUNDS))


@pytest.mark.parametrize("scheme", PEERS)
def test_a_liar_that_stays_by_lying_to_another_each_time_gives_itself_away(scheme: str) -> None:
    """Five can do without one: p2 is left out when accused, and comes back when the liar accuses p3."""
    victims = iter([("p2",), ("p3",)])

    def lie(table: Table, flight: InFlight) -> Message | None:
        message = flight.message
        return replace(message, lacking=next(victims, ())) if isinstance(message, SetupReport) else message

    table = spoiled(scheme, lie)
    others_go_on(table)
    honest = tuple(name for name in table.participants if name != LIAR)
    first = told(table, SERVER).commits[0]
    assert (first.attempt, first.members) == (2, honest)


QUIET: dict[str, Lie] = {
    "no report": withheld(SetupReport, SERVER),
    "behind for ever": reports(behind=True),
    "everyone accused": reports(lacking=tuple(name for name in party_names(5) if name != LIAR)),
    "leaves at the end": leaves,
    "waits for itself": reports(lacking=(LIAR,)),
}


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", QUIET)
def test_a_peer_that_is_never_ready_is_left_out_and_not_named(scheme: str, lie: str) -> None:
    table = spoiled(scheme, QUIET[lie])
    others_go_on(table)
    assert not named(table)
    assert all(LIAR not in commit.members for commit in told(table, SERVER).commits)


@pytest.mark.parametrize("scheme", PEERS)
def test_no_round_begins_before_every_set_up_is_complete(scheme: str) -> None:
    table = lying_table(scheme, 5)
    late = hold(table, ModelHeld, "p2", "p1")
    assert not messages(table, RoundOpened)
    assert [message.complete for message in messages(table, SetupReport)] == [True] * 4
    table.inject("p1", "p2", late.message)
    table.run()
    assert len(told(table, SERVER).commits) == 1
    assert not told(table, SERVER).failures


@pytest.mark.parametrize("scheme", PEERS)
def test_a_report_counts_once_it_is_complete_and_names_members_alone(scheme: str) -> None:
    table = lying_table(scheme, 5)
    hold(table, ModelHeld, "p2", "p1")
    done = messages(table, SetupReport, "p3")[0]
    refuses(table, SERVER, "p3", done, AbortReason.REPLAY)
    stranger = replace(done, lacking=(PartyId("p9"),))
    refuses(table, SERVER, "p2", stranger, AbortReason.UNKNOWN_PARTY)
    refuses(table, SERVER, "p2", replace(done, waiting=(VICTIM,)), AbortReason.UNEXPECTED_MESSAGE)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("answer", ["none", "another state"])
def test_a_joiner_asks_the_next_holder_where_the_first_fails_it(scheme: str, answer: str) -> None:
    table = lying_table(scheme, 5, rounds=3, absent=["p4"])

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, ModelGiven) or flight.sender != "p0":
            return message
        return None if answer == "none" else replace(message, box=message.box[::-1].copy())

    table.tamper = tamper
    while not told(table, SERVER).commits:
        step(table) if table.wire else table.advance()
    table.restart("p4")
    until(table, ModelGiven, "p4", "p1")
    table.run()
    assert all(isinstance(told(table, name).ending, RunFinished) for name in table.participants)
    assert len(told(table, SERVER).commits) == 3
    assert PartyId("p4") in told(table, SERVER).commits[-1].members
    assert not named(table)
