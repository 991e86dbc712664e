"""What opening a session costs and shows where clients are told about their neighbours only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.tables.lying_table import lying_table, messages, refuses, told, until
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import Hello, Invitation, SessionOpened
from veilsum.protocol.schemes.masked.messages import CohortKeys
from veilsum.protocol.secure_sum.group_key import GroupKeyDealt, GroupKeyDelivered, dealer_of
from veilsum.protocol.wire.codec import encode_message
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SETUP = (Invitation, Hello, SessionOpened, GroupKeyDealt, GroupKeyDelivered)


def thin_table(parties: int) -> Table:
    return lying_table("masked", parties, dimension=4, threat=Threat.SEMI_HONEST, graph="k-regular:6")


def setup_bytes_per_client(parties: int) -> float:
    """All bytes that travel in either direction from the invitation to the group key, by the number of clients."""
    table, sizes = thin_table(parties), [0]

    def count(flight: InFlight) -> Message:
        if isinstance(flight.message, SETUP):
            sizes.append(sum(memoryview(part).nbytes for part in encode_message(flight.message)))
        return flight.message

    table.tamper = count
    until(table, CohortKeys)
    return sum(sizes) / parties


def test_the_bytes_of_a_set_up_per_client_do_not_grow_with_the_session() -> None:
    found = [setup_bytes_per_client(parties) for parties in (64, 128, 256)]
    assert 0 < max(found) < 1.1 * min(found)


def test_a_client_is_shown_its_own_hello_and_the_dealers_and_later_those_of_its_neighbours() -> None:
    table = thin_table(12).run()
    names = set(table.participants)
    first = messages(table, SessionOpened)[0]
    dealer = dealer_of(first.stamp.session, names)
    for name in names:
        (opened,) = messages(table, SessionOpened, receiver=name)
        (keys,) = messages(table, CohortKeys, receiver=name)
        assert set(opened.hellos) == (names if name == dealer else {name, dealer})
        assert {*opened.hellos, *keys.hellos} >= set(keys.keys)
        assert len(keys.keys) == 7
    assert {name: told(table, name).commits[0].members for name in names} == dict.fromkeys(
        names, tuple(sorted(names))
    )


def test_a_session_listed_in_part_is_refused_where_all_hellos_were_agreed_on() -> None:
    table = lying_table("masked", 5)
    honest = until(table, SessionOpened, "p0").message
    assert isinstance(honest, SessionOpened)
    own = {PartyId("p0"): honest.hellos[PartyId("p0")]}
    present = table.federation.roster.packed(honest.hellos)
    lie = replace(honest, hellos=own, present=present)
    refuses(table, "p0", SERVER, lie, AbortReason.WRONG_SESSION)


@pytest.mark.parametrize(
    ("present", "reason"),
    [
        (b"\x07\x00", AbortReason.COHORT_TOO_SMALL),
        (b"\xff\xff", AbortReason.UNKNOWN_PARTY),
        (b"\xff", AbortReason.UNKNOWN_PARTY),
        (b"\xff\x0f\x00", AbortReason.UNKNOWN_PARTY),
    ],
)
def test_members_that_the_roster_does_not_have_or_that_are_too_few_are_refused(
    present: bytes, reason: AbortReason
) -> None:
    table = lying_table(
        "masked", 12, dimension=4, threat=Threat.SEMI_HONEST, graph="k-regular:6", min_parties=8
    )
    victim, honest = part_of(table)
    refuses(table, victim, SERVER, replace(honest, present=present), reason)


def test_a_hello_that_was_changed_or_left_out_is_noticed() -> None:
    """Our own as the session opens, those of others when something is to be sealed for them."""
    table = thin_table(12)
    victim, honest = part_of(table)
    (dealer,) = set(honest.hellos) - {victim}
    swapped = {**honest.hellos, victim: honest.hellos[dealer]}
    refuses(table, victim, SERVER, replace(honest, hellos=swapped), AbortReason.WRONG_SESSION)
    keys = until(table, CohortKeys, victim).message
    assert isinstance(keys, CohortKeys)
    refuses(table, victim, SERVER, replace(keys, hellos={}), AbortReason.BAD_KEY)
    (some, other, *_) = sorted(keys.hellos)
    wrong = {**keys.hellos, some: replace(keys.hellos[some], box_key=keys.hellos[other].box_key)}
    refuses(table, victim, SERVER, replace(keys, hellos=wrong), AbortReason.BAD_KEY)
    forged = {**keys.hellos, some: replace(keys.hellos[some], signature=bytes(64))}
    refuses(table, victim, SERVER, replace(keys, hellos=forged), AbortReason.BAD_SIGNATURE)


def part_of(table: Table) -> tuple[PartyId, SessionOpened]:
    """Somebody who does not deal the group key, and what the server is about to tell it of the session."""
    honest = until(table, SessionOpened, "p0").message
    assert isinstance(honest, SessionOpened)
    dealer = dealer_of(honest.stamp.session, table.participants)
    victim = next(name for name in table.participants if name != dealer)
    opened = until(table, SessionOpened, victim).message
    assert isinstance(opened, SessionOpened)
    return victim, opened
