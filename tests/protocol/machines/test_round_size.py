"""What a round costs and shows where all are told with a bit for each who is in the sum, and by name elsewhere."""

from __future__ import annotations

import struct
from dataclasses import replace

import msgpack  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest

from tests.support.refusals import refusal
from tests.support.tables.lying_table import lose_before, lying_table, messages, refuses, say, told, until
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import RoundClosed, RoundOpened
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.defects import WireDefect, WireError
from veilsum.protocol.wire.messages import InvalidField, Message, Stamp
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

P0, TWELVE, WITHOUT_P0 = PartyId("p0"), b"\xff\x0f", b"\xfe\x0f"


def thin_table(parties: int) -> Table:
    return lying_table("masked", parties, dimension=4, threat=Threat.SEMI_HONEST, graph="k-regular:6")


def shown_sum(table: Table) -> SumOpened:
    shown = until(table, SumOpened, P0).message
    assert isinstance(shown, SumOpened)
    return shown


def closing_word(table: Table) -> RoundClosed:
    closed = until(table, RoundClosed, P0).message
    assert isinstance(closed, RoundClosed)
    return closed


def round_bytes_per_client(parties: int) -> float:
    """All bytes that travel in either direction from the opening of a round to its end, by the number of clients."""
    table, sizes = thin_table(parties), [0]
    until(table, RoundOpened)

    def count(flight: InFlight) -> Message:
        sizes.append(sum(memoryview(part).nbytes for part in encode_message(flight.message)))
        return flight.message

    table.tamper = count
    table.run()
    assert len(told(table, table.participants[0]).commits) == 1
    return sum(sizes) / parties


def test_the_bytes_of_a_round_per_client_do_not_grow_with_the_session() -> None:
    found = [round_bytes_per_client(parties) for parties in (64, 128, 256)]
    assert 0 < max(found) < 1.1 * min(found)


def test_everyone_commits_with_those_whose_bits_are_set_whether_it_is_among_them_or_not() -> None:
    table = lose_before(thin_table(12), MaskedInput, "p7").run()
    rest = tuple(name for name in table.participants if name != "p7")
    for kind in (SumOpened, RoundClosed):
        told_to = messages(table, kind, receiver="p3")[0]
        assert told_to.present == table.federation.roster.packed(rest)
    assert messages(table, SumOpened)[0].survivors == messages(table, RoundClosed)[0].members == ()
    assert {told(table, name).commits[0].members for name in (*rest, SERVER)} == {rest}


@pytest.mark.parametrize(
    ("present", "reason"),
    [
        (TWELVE[:1], AbortReason.UNKNOWN_PARTY),
        (TWELVE + b"\x00", AbortReason.UNKNOWN_PARTY),
        (b"\xff\x1f", AbortReason.UNKNOWN_PARTY),
        (WITHOUT_P0, AbortReason.SURVIVOR_LIST),
        (bytes(2), AbortReason.SURVIVOR_LIST),
        (b"", AbortReason.SURVIVOR_LIST),
    ],
)
def test_a_sum_whose_bits_do_not_fit_the_roster_or_leave_its_reader_out_is_refused(
    present: bytes, reason: AbortReason
) -> None:
    table = thin_table(12)
    honest = shown_sum(table)
    assert honest.present == TWELVE
    refuses(table, P0, SERVER, replace(honest, present=present), reason)


@pytest.mark.parametrize("present", [TWELVE[:1], TWELVE + b"\x00", b"\xff\x1f", b""])
def test_a_round_closed_with_bits_that_do_not_fit_the_roster_is_refused(present: bytes) -> None:
    table = thin_table(12)
    honest = closing_word(table)
    reason = AbortReason.UNKNOWN_PARTY if present else AbortReason.SURVIVOR_LIST
    refuses(table, P0, SERVER, replace(honest, present=present), reason)


@pytest.mark.parametrize("present", [WITHOUT_P0, b"\xff\x07", bytes(2)])
def test_a_round_closed_with_other_bits_than_the_sum_had_is_committed_by_nobody_who_hears_it(
    present: bytes,
) -> None:
    table = thin_table(12)
    assert say(table, SERVER, P0, replace(closing_word(table), present=present)) is None
    (failure,) = told(table, P0).failures
    assert (failure.reason, failure.culprit) == (AbortReason.WRONG_MODEL, SERVER)
    assert not told(table, P0).commits


def test_names_are_refused_where_bits_were_agreed_on_and_bits_where_names_were() -> None:
    thin, full = thin_table(12), lying_table("masked", 5)
    by_name, by_bit = tuple(thin.participants), full.federation.roster.packed(full.participants)
    named = replace(shown_sum(thin), survivors=by_name, present=b"")
    refuses(thin, P0, SERVER, named, AbortReason.SURVIVOR_LIST)
    counted = replace(shown_sum(full), survivors=(), present=by_bit)
    refuses(full, P0, SERVER, counted, AbortReason.SURVIVOR_LIST)
    closed = replace(closing_word(thin), members=by_name, present=b"")
    refuses(thin, P0, SERVER, closed, AbortReason.SURVIVOR_LIST)
    closed = replace(closing_word(full), members=(), present=by_bit)
    refuses(full, P0, SERVER, closed, AbortReason.SURVIVOR_LIST)


def test_a_message_with_names_and_bits_cannot_be_built() -> None:
    with refusal(InvalidField, "RoundClosed", "both"):
        RoundClosed(Stamp(), True, (P0,), bytes(32), present=TWELVE)
    with refusal(InvalidField, "SumOpened", "both"):
        SumOpened(Stamp(), (P0,), np.zeros(1, np.uint32), TWELVE)


def test_a_message_with_names_and_bits_cannot_be_read_from_the_wire() -> None:
    fields = {
        "committed": True,
        "members": ["p0"],
        "next_model_hash": bytes(32),
        "reason": "",
        "certificate": None,
    }
    for present, sound in ((b"", True), (TWELVE, False)):
        packed = msgpack.packb({**fields, "present": present})
        body = bytearray(struct.pack("<I", len(packed)) + packed)
        if sound:
            assert decode_message("round.closed", Stamp(), body) == RoundClosed(
                Stamp(), True, (P0,), bytes(32)
            )
            continue
        with pytest.raises(WireError) as refused:
            decode_message("round.closed", Stamp(), body)
        assert refused.value.defect is WireDefect.OUT_OF_BOUNDS
