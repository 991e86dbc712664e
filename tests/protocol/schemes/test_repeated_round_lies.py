"""What liars could make of spent rounds that are repeated, and of results that peers keep."""

from __future__ import annotations

import pytest

from tests.support.tables.lying_sessions import opening, session_of
from tests.support.tables.lying_table import (
    lying_table,
    messages,
    nobody_has_a_result,
    participant,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import RunFailed
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.lies.play import LiePlay
from veilsum.simulations.lies.sums import ShiftedTogether
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

PEERS = ("mpc", "ampc")
SECURE = ("masked", *PEERS)
REASON = AbortReason


def spent_without(table: Table, *kept_from_voting: str) -> None:
    """All but these released their shares for a sum over everyone; the server says nothing about it."""

    def tamper(flight: InFlight) -> Message | None:
        hidden = isinstance(flight.message, SurvivorProof) and flight.receiver in kept_from_voting
        return None if hidden or isinstance(flight.message, ReleasedShares) else flight.message

    table.tamper = tamper
    until(table, SurvivorProof)
    table.deliver_all()
    spent = {
        name
        for name in table.participants
        if name not in table.crashed and participant(table, name).record.spent
    }
    assert spent == set(table.participants) - table.crashed - set(kept_from_voting)


def test_keys_of_a_part_of_the_first_cohort_do_not_get_a_spent_client_to_upload() -> None:
    """p5 and p6 are the server's; p3 and p4 do not know of the first sum.

    The four of them could sign another list in a cohort of five with p0, whose update would then be in two sums: the
    difference would hold p1 and p2 alone, fewer than t - c honest updates.
    """
    table = lying_table("masked", 7)
    spent_without(table, "p3", "p4")
    stamp = session_of(table, 2, *table.participants)
    for name in table.participants:
        assert say(table, "server", name, opening(table, stamp)) is None
    keys = {
        flight.sender: flight.message.keys
        for flight in table.trace.sent
        if isinstance(flight.message, RoundKeys) and flight.message.stamp.session == stamp.session
    }
    stamp = opening(table, stamp).stamp
    part = {name: keys[PartyId(name)] for name in ("p0", "p3", "p4", "p5", "p6")}
    detail = refuses(table, "p0", "server", CohortKeys(stamp, part, len(part)), REASON.DIFFERENCING)
    assert "p1 is missing" in detail
    assert say(table, "server", "p0", CohortKeys(stamp, keys, len(keys))) is None


@pytest.mark.parametrize("scheme", SECURE)
def test_who_could_not_sign_the_first_list_has_no_voice_in_the_second(scheme: str) -> None:
    """Enough new parties could sign another list, with the updates of those who come for the same sum only."""
    table = lying_table(scheme, 6, absent=["p5"])
    spent_without(table)
    table.restart("p5")
    stamp = session_of(table, 2, *table.participants)
    for name in table.participants[:5]:
        detail = refuses(table, name, "server", opening(table, stamp), REASON.DIFFERENCING)
        assert "p5" in detail
    assert len(messages(table, MaskedInput)) == 5


class TwoSums(ShiftedTogether):
    """With the group key of p0 the server shows one half of the peers another sum than the other half."""

    name = "server+client:two-sums"

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        return super().instead_of(sender, receiver, message) if receiver in ("p1", "p2") else message


@pytest.mark.parametrize("scheme", PEERS)
def test_two_sums_that_both_verify_are_committed_by_nobody(scheme: str) -> None:
    """Four of five must vote for one state, two hold one and three the other: never a fork, and the way on is typed."""
    table = Table.build(scheme, 5, rounds=1)
    play = LiePlay(TwoSums, table.federation, table.machines.__getitem__)
    table.tamper = lambda flight: play.instead_of(flight.sender, flight.receiver, flight.message)[-1]
    table.start()
    table.run()
    voted = {
        name: disk.chain.next_state.hash
        for name, disk in table.disks.items()
        if disk.chain is not None and disk.chain.next_state is not None
    }
    assert len({voted[name] for name in ("p1", "p2")}) == 1
    assert voted["p1"] != voted["p3"]
    assert nobody_has_a_result(table)
    assert {type(told(table, name).ending) for name in table.participants} == {RunFailed}
