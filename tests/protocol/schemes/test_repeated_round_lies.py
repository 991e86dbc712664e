"""What liars could make of spent rounds that are repeated, and of results that peers keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_sessions import opening, session_of
from tests.support.tables.lying_table import (
    attempt_of,
    lying_table,
    messages,
    nobody_has_a_result,
    participant,
    refuses,
    say,
    step,
    until,
)
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.session import Farewell
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest
from veilsum.protocol.schemes.ampc.peer import AmpcPeer
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
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


def forked(scheme: str) -> tuple[Table, dict[str, Model]]:
    """Five peers of whom p1 and p2 were given another sum than p3 and p4; each has stated what it computed."""
    table = lying_table(scheme, 5)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, Aggregate) and flight.receiver in ("p1", "p2"):
            shift = np.zeros_like(flight.message.vector)
            shift[0] = 1 << 30
            return replace(flight.message, vector=flight.message.vector + shift)
        return None if isinstance(flight.message, Farewell) else flight.message

    table.tamper = tamper
    until(table, ResultDigest)
    while len(messages(table, Aggregate)) * 5 > len(messages(table, ResultDigest)):
        step(table)
    computed = {}
    for name in table.participants:
        attempt = attempt_of(table, name)
        assert isinstance(attempt, AmpcPeer)
        assert attempt._result is not None
        computed[name] = attempt._result.model
    table.deliver_all()
    assert nobody_has_a_result(table)
    return table, dict(computed)


@pytest.mark.parametrize("scheme", PEERS)
def test_one_liar_cannot_make_peers_keep_the_different_results_that_they_computed(scheme: str) -> None:
    """p0 tells each half, in a session without the other half, that what it computed was committed."""
    table, computed = forked(scheme)
    assert computed["p1"].tobytes() == computed["p2"].tobytes() != computed["p3"].tobytes()
    liar = participant(table, "p0")
    for number, half in ((2, ("p1", "p2")), (3, ("p3", "p4"))):
        liar.rounds_done, liar.model = 1, computed[half[0]]
        session_of(table, number, "p0", *half)
    assert {name: participant(table, name).rounds_done for name in table.participants[1:]} == dict.fromkeys(
        table.participants[1:], 0
    )


@pytest.mark.parametrize("scheme", PEERS)
def test_with_everyone_there_a_liar_convinces_nobody_of_a_result_that_some_computed(scheme: str) -> None:
    table, computed = forked(scheme)
    liar = participant(table, "p0")
    liar.rounds_done, liar.model = 1, computed["p1"]
    session_of(table, 2, *table.participants)
    assert {participant(table, name).rounds_done for name in table.participants[1:]} == {0}
