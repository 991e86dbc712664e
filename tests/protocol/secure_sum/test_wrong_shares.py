"""Whoever lies with shares is named, exactly: rounds go on where they can, and nobody honest is named by anyone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.tables.lying_shares import (
    dealt_wrong,
    named_by,
    signed_again,
    wrong_share,
)
from tests.support.tables.lying_table import (
    exact_model,
    lying_table,
    nobody_has_a_result,
    reasons,
    refuses,
    told,
    until,
)
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.secure_sum.dealt import SignedBox
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.invariants import check_invariants
from veilsum.simulations.testing.table import Table, Tamper
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
P0, P1, P2, P7 = PartyId("p0"), PartyId("p1"), PartyId("p2"), PartyId("p7")
ROUNDS = 3

Lie = Callable[[Table, InFlight], Message | None]


def told_by(table: Table, kind: type[Message], liars: tuple[PartyId, ...], lie: Lie) -> Tamper:
    def tamper(flight: InFlight) -> Message | None:
        lying = isinstance(flight.message, kind) and flight.sender in liars
        return lie(table, flight) if lying else flight.message

    return tamper


def play(scheme: str, parties: int, kind: type[Message], liars: tuple[PartyId, ...], lie: Lie) -> Table:
    table = lying_table(scheme, parties, rounds=ROUNDS)
    table.tamper = told_by(table, kind, liars, lie)
    table.run()
    check_invariants(table)
    return table


def cohorts(table: Table, name: str = P1) -> list[tuple[PartyId, ...]]:
    return [commit.members for commit in told(table, name).commits]


def dealing(*to: int, hashed: bool = False, garbled: bool = False) -> Lie:
    """Wrong shares in the boxes for the parties of these numbers."""

    def lie(table: Table, flight: InFlight) -> Message:
        sealed = flight.message
        assert isinstance(sealed, SealedShares)
        holders = [PartyId(f"p{number}") for number in to if f"p{number}" in sealed.boxes]
        if garbled:
            garbage = {holder: bytes(len(sealed.boxes[holder])) for holder in holders}
            return signed_again(
                table.federation, flight.sender, replace(sealed, boxes={**sealed.boxes, **garbage})
            )
        return dealt_wrong(table, flight.sender, sealed, holders, hashed=hashed)

    return lie


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("garbled", [True, False])
def test_a_dealer_that_lies_to_one_holder_is_named_by_that_holder_alone(scheme: str, garbled: bool) -> None:
    table = play(scheme, 8, SealedShares, (P0,), dealing(3, garbled=garbled))
    assert named_by(table, "p3") == {P0}
    assert not named_by(table, SERVER, *(set(table.participants) - {"p3"}))
    assert cohorts(table) == [table.participants] * ROUNDS


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("garbled", [True, False])
def test_a_dealer_that_lies_to_all_is_named_and_every_round_committed_without_it(
    scheme: str, garbled: bool
) -> None:
    table = play(scheme, 8, SealedShares, (P0,), dealing(*range(1, 8), garbled=garbled))
    assert named_by(table, SERVER, *table.participants) == {P0}
    assert named_by(table, SERVER) == {P0}
    assert cohorts(table) == [table.participants[1:]] * ROUNDS
    assert isinstance(told(table, P1).ending, RunFinished)
    ending = told(table, P0).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is REASON.BAD_SHARE


@pytest.mark.parametrize("scheme", SECURE)
def test_a_dealer_whom_too_few_accuse_is_done_without_and_not_named(scheme: str) -> None:
    """Of nine holders seven must have shares, and three may lie: three that refuse theirs settle the first only."""
    table = play(scheme, 9, SealedShares, (P0,), dealing(1, 2, 3))
    assert not named_by(table, SERVER)
    assert named_by(table, *table.participants) == {P0}
    assert cohorts(table) == [table.participants[1:]] * ROUNDS
    assert {failure.reason for failure in told(table, SERVER).failures} == {REASON.BAD_SHARE}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize(("parties", "liars"), [(8, 1), (9, 3)])
def test_holders_that_accuse_an_honest_dealer_make_nobody_name_it(
    scheme: str, parties: int, liars: int
) -> None:
    accusers = tuple(PartyId(f"p{number}") for number in range(1, 1 + liars))

    def accuse(table: Table, flight: InFlight) -> Message:
        assert isinstance(flight.message, MaskedInput)
        return replace(flight.message, refused=(P0,))

    table = lying_table(scheme, parties, rounds=ROUNDS)
    lie = told_by(table, MaskedInput, accusers, accuse)

    def tamper(flight: InFlight) -> Message | None:
        first = (flight.message.stamp.round, flight.message.stamp.attempt) == (0, 0)
        return lie(flight) if first else flight.message

    table.tamper = tamper
    table.run()
    assert not named_by(table, SERVER, *table.participants)
    first = table.participants if liars == 1 else table.participants[1:]
    assert cohorts(table) == [first, table.participants, table.participants]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["off the polynomial", "another seed"])
def test_a_dealer_whose_shares_rebuild_another_secret_is_named_as_nothing_opens(
    scheme: str, lie: str
) -> None:
    """Nobody can tell before shares are released; then the round is spent, and this dealer is in it."""

    def deal(table: Table, flight: InFlight) -> Message:
        assert isinstance(flight.message, SealedShares)
        if lie == "off the polynomial":
            return dealing(1, hashed=True)(table, flight)
        return signed_again(table.federation, P0, replace(flight.message, seed_hash=bytes(32)))

    table = play(scheme, 8, SealedShares, (P0,), deal)
    assert named_by(table, SERVER, *table.participants) == {P0}
    assert nobody_has_a_result(table, SERVER, *table.participants)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert (ending.reason, ending.culprit) == (REASON.BAD_SHARE, P0)


WRONG_SHARES: dict[str, Callable[[ReleasedShares], bytes]] = {
    "changed": lambda released: wrong_share(released.self_masks[P0]),
    "short": lambda released: released.self_masks[P0][1:],
    "empty": lambda released: b"",
    "no field element": lambda released: b"\xff" * 33,
    "of another dealer": lambda released: released.self_masks[P1],
}


def releasing(lie: str) -> Lie:
    def release(table: Table, flight: InFlight) -> Message:
        released = flight.message
        assert isinstance(released, ReleasedShares)
        return replace(released, self_masks={**released.self_masks, P0: WRONG_SHARES[lie](released)})

    return release


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", WRONG_SHARES)
def test_a_holder_that_releases_a_wrong_share_is_named_and_every_round_committed(
    scheme: str, lie: str
) -> None:
    table = play(scheme, 8, ReleasedShares, (P7,), releasing(lie))
    assert named_by(table, SERVER, *table.participants) == {P7}
    assert cohorts(table) == [table.participants, *[table.participants[:7]] * (ROUNDS - 1)]
    holder = SERVER if table.federation.scheme.server_holds_model else P1
    model = told(table, holder).commits[0].model
    assert model is not None
    assert model.tobytes() == exact_model(table, table.participants)
    ending = told(table, P7).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is REASON.BAD_SHARE


@pytest.mark.parametrize("scheme", SECURE)
def test_a_share_of_another_holder_names_the_one_that_released_it(scheme: str) -> None:
    seen: dict[PartyId, bytes] = {}

    def release(table: Table, flight: InFlight) -> Message:
        released = flight.message
        assert isinstance(released, ReleasedShares)
        if flight.sender == P2:
            seen[P0] = released.self_masks[P0]
            return released
        return replace(released, self_masks={**released.self_masks, **seen})

    table = play(scheme, 8, ReleasedShares, (P2, P7), release)
    assert named_by(table, SERVER, *table.participants) == {P7}
    assert len(cohorts(table)) == ROUNDS


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("silent", [("p6",), ("p5", "p6")])
def test_right_shares_open_a_sum_from_the_threshold_on_whatever_the_wrong_ones_say(
    scheme: str, silent: tuple[str, ...]
) -> None:
    """Six of eight shares are needed: with p7 lying there are six without p6, and five without p5 as well."""
    table = lying_table(scheme, 8)
    lie = told_by(table, ReleasedShares, (P7,), releasing("changed"))

    def tamper(flight: InFlight) -> Message | None:
        lost = isinstance(flight.message, ReleasedShares) and flight.sender in silent
        return None if lost else lie(flight)

    table.tamper = tamper
    table.run()
    assert named_by(table, SERVER) == {P7}
    if len(silent) == 1:
        assert cohorts(table) == [table.participants]
    else:
        assert nobody_has_a_result(table, SERVER, *table.participants)
        assert reasons(table, SERVER) == {REASON.BAD_SHARE}
        assert {failure.culprit for failure in told(table, SERVER).failures} == {P7}


def test_a_wrong_share_of_a_masking_key_names_its_holder_and_is_not_needed() -> None:
    table = lying_table("masked", 8, rounds=ROUNDS)

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if isinstance(message, MaskedInput) and flight.sender == "p3":
            table.crash("p3")
            return None
        if isinstance(message, ReleasedShares) and flight.sender == P7:
            keys = {name: wrong_share(share) for name, share in message.masking_keys.items()}
            return replace(message, masking_keys=keys)
        return message

    table.tamper = tamper
    table.run()
    assert named_by(table, SERVER) == {P7}
    present = tuple(name for name in table.participants if name != "p3")
    assert cohorts(table) == [present, *[present[:-1]] * (ROUNDS - 1)]


def test_a_masking_key_that_is_not_the_signed_one_names_its_dealer_and_the_others_go_on() -> None:
    """The key of p0 is rebuilt after it vanished, from shares as it dealt them, and has another public half."""
    table = lying_table("masked", 8)

    def spoil(plain: bytes) -> bytes:
        return plain[:33] + wrong_share(plain[33:])

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if flight.sender != P0:
            return message
        if isinstance(message, SealedShares):
            return dealt_wrong(table, P0, message, message.boxes, spoil, hashed=True)
        if isinstance(message, MaskedInput):
            return None
        return message

    table.tamper = tamper
    table.run()
    check_invariants(table)
    assert named_by(table, SERVER, *table.participants) == {P0}
    assert reasons(table, SERVER) == {REASON.BAD_SHARE}
    assert cohorts(table) == [table.participants[1:]]


SERVER_LIES: dict[str, Callable[[SignedBox, SignedBox], SignedBox]] = {
    "the hashes of another dealer": lambda signed, other: replace(signed, hashes=other.hashes),
    "the box of another dealer": lambda signed, other: replace(signed, box=other.box),
    "all that another dealer signed": lambda signed, other: other,
    "no signature": lambda signed, other: replace(signed, signature=bytes(64)),
    "no path": lambda signed, other: replace(signed, path=()),
    "no hashes": lambda signed, other: replace(signed, hashes=()),
    "a changed box": lambda signed, other: replace(signed, box=bytes(len(signed.box))),
}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", SERVER_LIES)
def test_what_the_server_changed_about_a_box_is_refused_and_held_against_no_dealer(
    scheme: str, lie: str
) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, DeliveredShares, "p0").message
    assert isinstance(honest, DeliveredShares)
    changed = SERVER_LIES[lie](honest.boxes[P1], honest.boxes[P2])
    forged = replace(honest, boxes={**honest.boxes, P1: changed})
    refuses(table, "p0", "server", forged, REASON.BAD_SIGNATURE)
    table.run()
    assert not named_by(table, SERVER, *table.participants)
    assert cohorts(table) == [table.participants]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["of another attempt", "of another holder"])
def test_a_box_signed_for_something_else_is_refused(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5, rounds=2)
    honest = until(table, DeliveredShares, "p0").message
    other = until(table, DeliveredShares, "p2").message
    assert isinstance(honest, DeliveredShares)
    assert isinstance(other, DeliveredShares)
    if lie == "of another holder":
        forged = replace(honest, boxes={**honest.boxes, P1: other.boxes[P1]})
    else:
        while honest.stamp.round == 0:
            old = honest
            table.deliver(table.wire[0])
            honest = until(table, DeliveredShares, "p0").message
            assert isinstance(honest, DeliveredShares)
        forged = replace(honest, boxes={**honest.boxes, P1: old.boxes[P1]})
    refuses(table, "p0", "server", forged, REASON.BAD_SIGNATURE)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("not signed", REASON.BAD_SIGNATURE),
        ("another box", REASON.BAD_SIGNATURE),
        ("a hash missing", REASON.BAD_SHARE),
        ("a kind missing", REASON.BAD_SHARE),
    ],
)
def test_the_server_takes_no_boxes_that_are_not_signed_as_they_are(
    scheme: str, lie: str, reason: AbortReason
) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, SealedShares, sender="p0").message
    assert isinstance(honest, SealedShares)
    hashes = dict(honest.hashes)
    if lie == "not signed":
        message = replace(honest, signature=bytes(64))
    elif lie == "another box":
        message = replace(honest, boxes={**honest.boxes, P1: bytes(82)})
    else:
        hashes[P1] = hashes[P1][1:]
        if lie == "a hash missing":
            del hashes[P1]
        message = signed_again(table.federation, P0, replace(honest, hashes=hashes))
    refuses(table, "server", "p0", message, reason)
    table.run()
    assert cohorts(table) == [table.participants]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("dealer", ["p0", "p9"])
def test_a_complaint_about_a_box_that_was_never_sent_is_refused(scheme: str, dealer: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, MaskedInput, sender="p0").message
    assert isinstance(honest, MaskedInput)
    lie = replace(honest, refused=(PartyId(dealer),))
    refuses(table, "server", "p0", lie, REASON.UNEXPECTED_MESSAGE)
    table.run()
    assert cohorts(table) == [table.participants]
