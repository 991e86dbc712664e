"""A hello that no honest party can send is refused in its sender's name, before anything is concluded from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.tables.checkpointed import after_checkpoint
from tests.support.tables.lying_table import lying_table, participant, refuses, told, until
from tests.support.tables.lying_uploads import lying_uploader
from veilsum.protocol.chain.statements import LIST_DOMAIN, MOST_ATTEMPTS, EnteredAttempt, list_digest
from veilsum.protocol.chain.votes import Ballot, Vote
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.session import Hello, SessionOpened
from veilsum.protocol.wire.limits import DEFAULT_LIMITS
from veilsum.protocol.wire.messages import Stamp
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing.table import Table

SECURE = ("masked", "mpc", "ampc")
LIAR = PartyId("p5")
ONE, TWO = bytes([1]) * 32, bytes([2]) * 32


def entered(*members: str, session: bytes = ONE, **fields: Any) -> EnteredAttempt:
    return EnteredAttempt(session, 0, tuple(map(PartyId, members)), **fields)


def many(count: int) -> tuple[EnteredAttempt, ...]:
    return tuple(entered(LIAR, session=number.to_bytes(32, "big")) for number in range(count))


def wordy(hellos: int) -> tuple[EnteredAttempt, ...]:
    """So many names that not all hellos of a session would fit one message."""
    names = sorted([LIAR, *(f"{'x' * 50}{number:07}" for number in range(2000))])
    fitting = DEFAULT_LIMITS.max_fields_bytes // hellos // (2000 * 60) + 1
    return tuple(entered(*names, session=number.to_bytes(32, "big")) for number in range(fitting))


UNSOUND: dict[str, tuple[Callable[[], tuple[EnteredAttempt, ...]], AbortReason]] = {
    "an attempt of nobody": (lambda: (entered(uploaded=True),), AbortReason.SURVIVOR_LIST),
    "an attempt of others": (lambda: (entered("p0", "p1"),), AbortReason.SURVIVOR_LIST),
    "a party twice": (lambda: (entered("p0", "p0", LIAR),), AbortReason.SURVIVOR_LIST),
    "out of order": (lambda: (entered(LIAR, "p0"),), AbortReason.SURVIVOR_LIST),
    "an attempt twice": (
        lambda: (entered(LIAR), entered(LIAR, session=TWO), entered(LIAR)),
        AbortReason.SURVIVOR_LIST,
    ),
    "a list of others": (
        lambda: (entered("p0", LIAR, released=(PartyId("p1"),)),),
        AbortReason.SURVIVOR_LIST,
    ),
    "too many attempts": (lambda: many(MOST_ATTEMPTS + 1), AbortReason.POSITION_LOST),
    "too long": (lambda: wordy(6), AbortReason.POSITION_LOST),
}


def lying_hello(table: Table, attempts: tuple[EnteredAttempt, ...], **fields: Any) -> Hello:
    """A hello of the liar with these statements, properly signed."""
    greeting = participant(table, LIAR)._greeting
    assert greeting is not None
    me = table.federation.identities[LIAR]
    hello = greeting.terms.new_hello(me, greeting.box_key, 0, SeededEntropy(3), attempts, **fields)
    return replace(greeting.message, hello=hello)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", UNSOUND)
def test_the_server_refuses_it_by_name_and_goes_on_without(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 6, rounds=2)
    flight = until(table, Hello, SERVER, LIAR)
    make, reason = UNSOUND[lie]
    refuses(table, SERVER, LIAR, lying_hello(table, make()), reason)
    table.drop(flight)
    table.tamper = lambda one: None if one.sender == LIAR else one.message
    table.run()
    assert len(told(table, SERVER).commits) == 2
    assert isinstance(told(table, "p0").ending, RunFinished)


@pytest.mark.parametrize("scheme", SECURE)
def test_participants_refuse_it_from_a_server_that_shows_it_all_the_same(scheme: str) -> None:
    """Vouched for by the server, stated by its colluder: a list out of nobody."""
    table = lying_table(scheme, 6, rounds=2)
    until(table, Hello, SERVER, LIAR)
    empty = entered(uploaded=True, released=(PartyId("p0"),))
    digest = list_digest(empty.stamp(0), empty.released, empty.members)
    voucher = table.federation.identities[SERVER].signing.sign(LIST_DOMAIN, digest)
    forged = lying_hello(table, (replace(empty, voucher=voucher),)).hello
    honest = {
        flight.sender: flight.message.hello
        for flight in table.wire
        if isinstance(flight.message, Hello) and flight.sender != LIAR
    }
    greeting = participant(table, LIAR)._greeting
    assert greeting is not None
    hellos = {**honest, LIAR: forged}
    opened = SessionOpened(Stamp(greeting.terms.open(hellos, 0).id), hellos)
    for name in honest:
        refuses(table, name, SERVER, opened, AbortReason.SURVIVOR_LIST)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_vote_below_the_anchor_counts_for_nothing_and_ends_no_server(scheme: str) -> None:
    table = lying_table(scheme, 6, rounds=2)
    table.tamper = lying_uploader(table, "p3", -1, 1, tagged=True, in_round=1)
    table.run()
    table = after_checkpoint(table, "p0")
    anchor = table.federation.roster.anchor
    assert anchor is not None
    assert anchor.position == 1
    until(table, Hello, SERVER, LIAR)
    ballot = Ballot(1, b"", b"", (), (PartyId("p0"),))
    vote = Vote.cast(table.federation.identities[LIAR], anchor.digest, ballot)
    lie = replace(lying_hello(table, ()), certificate=None, vote=vote)
    refuses(table, SERVER, LIAR, lie, AbortReason.REPLAY)


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_a_server_that_lost_its_folder_begins_at_the_checkpoint_and_the_run_ends_well(scheme: str) -> None:
    """It holds no model there, and the hellos prove the rest."""
    table = lying_table(scheme, 6, rounds=3)
    table.tamper = lying_uploader(table, "p3", -1, 1, tagged=True, in_round=1)
    table.run()
    table = after_checkpoint(table, "p0")
    table.crash(SERVER)
    table.wire.clear()
    table.disks[SERVER] = PersistentState(0, None)
    table.restart(SERVER)
    table.run()
    assert isinstance(told(table, SERVER).ending, RunFinished)
