"""What liars could make of spent rounds that are repeated, and of results that peers keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_sessions import opening, session_of
from tests.support.tables.lying_table import Flight, LyingTable
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

PEERS = ("mpc", "ampc")
SECURE = ("masked", *PEERS)
REASON = AbortReason


def spent_without(table: LyingTable, *kept_from_voting: str) -> None:
    """All but these released their shares for a sum over everyone; the server says nothing about it."""

    def tamper(flight: Flight) -> Message | None:
        hidden = isinstance(flight.message, SurvivorProof) and flight.receiver in kept_from_voting
        return None if hidden or isinstance(flight.message, ReleasedShares) else flight.message

    table.tamper = tamper
    table.until(SurvivorProof)
    table.settle()
    spent = {name for name in table.names if name not in table.gone and table.participant(name).record.spent}
    assert spent == set(table.names) - table.gone - set(kept_from_voting)


def test_keys_of_a_part_of_the_first_cohort_do_not_get_a_spent_client_to_upload() -> None:
    """p5 and p6 are the server's; p3 and p4 do not know of the first sum.

    The four of them could sign another list in a cohort of five with p0, whose update would then be in two sums: the
    difference would hold p1 and p2 alone, fewer than t - c honest updates.
    """
    table = LyingTable("masked", 7)
    spent_without(table, "p3", "p4")
    stamp = session_of(table, 2, *table.names)
    for name in table.names:
        assert table.say("server", name, opening(table, stamp)) is None
    keys = {
        flight.sender: flight.message.keys
        for flight in table.sent
        if isinstance(flight.message, RoundKeys) and flight.message.stamp.session == stamp.session
    }
    stamp = opening(table, stamp).stamp
    part = {name: keys[PartyId(name)] for name in ("p0", "p3", "p4", "p5", "p6")}
    detail = table.refuses("p0", "server", CohortKeys(stamp, part, len(part)), REASON.DIFFERENCING)
    assert "p1 is missing" in detail
    assert table.say("server", "p0", CohortKeys(stamp, keys, len(keys))) is None


@pytest.mark.parametrize("scheme", SECURE)
def test_who_could_not_sign_the_first_list_has_no_voice_in_the_second(scheme: str) -> None:
    """Enough new parties could sign another list, with the updates of those who come for the same sum only."""
    table = LyingTable(scheme, 6, absent=["p5"])
    spent_without(table)
    table.seat("p5")
    stamp = session_of(table, 2, *table.names)
    for name in table.names[:5]:
        detail = table.refuses(name, "server", opening(table, stamp), REASON.DIFFERENCING)
        assert "p5" in detail
    assert len(table.messages(MaskedInput)) == 5


def forked(scheme: str) -> tuple[LyingTable, dict[str, Model]]:
    """Five peers of whom p1 and p2 were given another sum than p3 and p4; each has stated what it computed."""
    table = LyingTable(scheme, 5)

    def tamper(flight: Flight) -> Message | None:
        if isinstance(flight.message, Aggregate) and flight.receiver in ("p1", "p2"):
            shift = np.zeros_like(flight.message.vector)
            shift[0] = 1 << 30
            return replace(flight.message, vector=flight.message.vector + shift)
        return None if isinstance(flight.message, Farewell) else flight.message

    table.tamper = tamper
    table.until(ResultDigest)
    while len(table.messages(Aggregate)) * 5 > len(table.messages(ResultDigest)):
        table.step()
    computed = {}
    for name in table.names:
        attempt = table.attempt_of(name)
        assert isinstance(attempt, AmpcPeer)
        assert attempt._result is not None
        computed[name] = attempt._result.model
    table.settle()
    assert table.nobody_has_a_result()
    return table, dict(computed)


@pytest.mark.parametrize("scheme", PEERS)
def test_one_liar_cannot_make_peers_keep_the_different_results_that_they_computed(scheme: str) -> None:
    """p0 tells each half, in a session without the other half, that what it computed was committed."""
    table, computed = forked(scheme)
    assert computed["p1"].tobytes() == computed["p2"].tobytes() != computed["p3"].tobytes()
    liar = table.participant("p0")
    for number, half in ((2, ("p1", "p2")), (3, ("p3", "p4"))):
        liar.rounds_done, liar.model = 1, computed[half[0]]
        session_of(table, number, "p0", *half)
    assert {name: table.participant(name).rounds_done for name in table.names[1:]} == dict.fromkeys(
        table.names[1:], 0
    )


@pytest.mark.parametrize("scheme", PEERS)
def test_with_everyone_there_a_liar_convinces_nobody_of_a_result_that_some_computed(scheme: str) -> None:
    table, computed = forked(scheme)
    liar = table.participant("p0")
    liar.rounds_done, liar.model = 1, computed["p1"]
    session_of(table, 2, *table.names)
    assert {table.participant(name).rounds_done for name in table.names[1:]} == {0}
