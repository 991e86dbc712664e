"""A server that lies about keys, seeds, sessions and attempts: changes are noticed, repetitions refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_sessions import opening, session_of
from tests.support.tables.lying_table import (
    hand_over,
    lying_table,
    messages,
    nobody_has_a_result,
    participant,
    reasons,
    refuses,
    say,
    step,
    told,
    until,
)
from veilsum.protocol.agreed.parameters import Rekey
from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.session import Invitation, RoundOpened, SessionOpened
from veilsum.protocol.schemes.ampc.messages import ModelGiven, SealedRecord, SeedsRelayed
from veilsum.protocol.schemes.masked.messages import CohortKeys, KeyRecord, RoundKeys
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.fields import DEFAULT_MAX_INTEGER
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
P0, P1, P2 = (PartyId(f"p{index}") for index in range(3))
OTHER_KEY = AgreementKey(Secret(bytes([9]) * 32)).public
LOW_ORDER = (1).to_bytes(32, "little")


def all_commit(table: Table) -> bool:
    table.run()
    return all(len(told(table, name).commits) == table.federation.rules.rounds for name in table.participants)


def lying_keys(
    honest: Mapping[PartyId, KeyRecord],
) -> dict[str, tuple[dict[PartyId, KeyRecord], AbortReason]]:
    """Every way to tamper with the round keys that p0 is shown."""
    keys = dict(honest)

    def with_p1(**changes: bytes) -> dict[PartyId, KeyRecord]:
        return {**keys, P1: replace(keys[P1], **changes)}

    return {
        "changed": (with_p1(key=OTHER_KEY), REASON.BAD_SIGNATURE),
        "swapped": ({**keys, P1: keys[P2], P2: keys[P1]}, REASON.BAD_SIGNATURE),
        "reflected": (with_p1(key=keys[P0].key), REASON.BAD_KEY),
        "same key twice": ({**keys, P1: keys[P2]}, REASON.BAD_KEY),
        "low order": (with_p1(key=LOW_ORDER), REASON.BAD_KEY),
        "not canonical": (with_p1(key=bytes([255]) * 32), REASON.BAD_KEY),
        "another model": (with_p1(model_hash=bytes(32)), REASON.WRONG_MODEL),
        "another group key": (with_p1(group=bytes(32)), REASON.BAD_KEY),
        "our own changed": ({**keys, P0: replace(keys[P0], key=OTHER_KEY)}, REASON.EQUIVOCATION),
        "our own missing": ({name: key for name, key in keys.items() if name != P0}, REASON.EQUIVOCATION),
        "too few": ({P0: keys[P0], P1: keys[P1]}, REASON.COHORT_TOO_SMALL),
        "a stranger": ({**keys, PartyId("stranger"): replace(keys[P1], key=OTHER_KEY)}, REASON.UNKNOWN_PARTY),
    }


KEY_LIES = tuple(
    lying_keys(dict.fromkeys((P0, P1, P2), KeyRecord(bytes(32), bytes(32), bytes(32), bytes(64))))
)


@pytest.mark.parametrize("lie", KEY_LIES)
def test_tampered_round_keys_are_refused(lie: str) -> None:
    table = lying_table("masked", 5)
    honest = until(table, CohortKeys, "p0").message
    assert isinstance(honest, CohortKeys)
    keys, reason = lying_keys(honest.keys)[lie]
    refuses(table, "p0", "server", replace(honest, keys=keys, size=len(keys)), reason)
    assert all_commit(table)


def test_a_round_key_of_an_earlier_round_does_not_serve_again() -> None:
    table = lying_table("masked", 5, rounds=2)
    old = until(table, RoundKeys, sender="p1").message
    assert isinstance(old, RoundKeys)
    until(table, RoundOpened, "p0")
    while True:
        later = until(table, CohortKeys, "p0").message
        assert isinstance(later, CohortKeys)
        if later.stamp.round == 1:
            break
        step(table)
    detail = refuses(
        table, "p0", "server", replace(later, keys={**later.keys, P1: old.keys}), REASON.WRONG_MODEL
    )
    assert "p1" in detail
    forged = replace(old.keys, model_hash=later.stamp.model_hash)
    refuses(table, "p0", "server", replace(later, keys={**later.keys, P1: forged}), REASON.BAD_SIGNATURE)
    assert all_commit(table)


def lying_hellos(
    honest: Mapping[PartyId, HelloRecord],
) -> dict[str, tuple[dict[PartyId, HelloRecord], AbortReason]]:
    hellos = dict(honest)
    return {
        "changed key": ({**hellos, P1: replace(hellos[P1], box_key=OTHER_KEY)}, REASON.BAD_SIGNATURE),
        "changed nonce": ({**hellos, P1: replace(hellos[P1], nonce=bytes(32))}, REASON.BAD_SIGNATURE),
        "changed rounds": ({**hellos, P1: replace(hellos[P1], rounds_done=9)}, REASON.BAD_SIGNATURE),
        "swapped": ({**hellos, P1: hellos[P2], P2: hellos[P1]}, REASON.BAD_SIGNATURE),
        "reflected": ({**hellos, P1: replace(hellos[P1], box_key=hellos[P0].box_key)}, REASON.BAD_KEY),
        "low order": ({**hellos, P1: replace(hellos[P1], box_key=LOW_ORDER)}, REASON.BAD_KEY),
        "our own changed": ({**hellos, P0: replace(hellos[P0], box_key=OTHER_KEY)}, REASON.WRONG_SESSION),
        "our own missing": ({name: one for name, one in hellos.items() if name != P0}, REASON.WRONG_SESSION),
        "too few": ({P0: hellos[P0], P1: hellos[P1]}, REASON.COHORT_TOO_SMALL),
        "a stranger": ({**hellos, PartyId("stranger"): hellos[P1]}, REASON.UNKNOWN_PARTY),
        "the server itself": ({**hellos, PartyId("server"): hellos[P1]}, REASON.UNKNOWN_PARTY),
    }


HELLO_LIES = tuple(lying_hellos(dict.fromkeys((P0, P1, P2), HelloRecord(bytes(32), bytes(32), 0, bytes(64)))))


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", HELLO_LIES)
def test_tampered_hellos_open_no_session(scheme: str, lie: str) -> None:
    """The lying server even computes the session id that goes with its lie, where there is one."""
    table = lying_table(scheme, 5)
    honest = until(table, SessionOpened, "p0").message
    assert isinstance(honest, SessionOpened)
    hellos, reason = lying_hellos(honest.hellos)[lie]
    refuses(table, "p0", "server", SessionOpened(honest.stamp, hellos), reason)
    assert participant(table, "p0").session is None


@pytest.mark.parametrize("scheme", SECURE)
def test_a_session_begins_with_a_round_at_its_own_position(scheme: str) -> None:
    """What the members stated was judged for that one."""
    table = lying_table(scheme, 5, rounds=3)
    honest = until(table, RoundOpened, "p0").message
    for number in (1, 2):
        lie = replace(honest, stamp=replace(honest.stamp, round=number))
        refuses(table, "p0", "server", lie, REASON.WRONG_ROUND)
    assert all_commit(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_session_id_that_does_not_follow_from_hellos_and_position_is_refused(scheme: str) -> None:
    """One session is at one position for all: told another one, a party would judge by what nobody said of it."""
    table = lying_table(scheme, 5)
    honest = until(table, SessionOpened, "p0").message
    assert isinstance(honest, SessionOpened)
    for stamp in (Stamp(bytes(32)), replace(honest.stamp, round=1)):
        refuses(table, "p0", "server", replace(honest, stamp=stamp), REASON.WRONG_SESSION)
    assert all_commit(table)


FOR_P0 = (CohortKeys, DeliveredShares, SurvivorList, SurvivorProof)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("rekeyed", [False, True])
def test_messages_of_an_earlier_round_or_session_belong_nowhere(scheme: str, rekeyed: bool) -> None:
    """All that the server told p0 in round 0 is refused in round 1, in the same session and in another."""
    table = lying_table(scheme, 5, rounds=2, rekey=Rekey.ROUND if rekeyed else Rekey.EPOCH)
    until(table, MaskedInput, sender="p0")
    while participant(table, "p0").rounds_done == 0:
        step(table)
    until(table, DeliveredShares, "p0")
    stale = [
        message
        for kind in FOR_P0
        for message in messages(table, kind, receiver="p0")
        if message.stamp.round == 0
    ]
    assert len(stale) >= 3
    for message in stale:
        refuses(table, "p0", "server", message, REASON.WRONG_SESSION if rekeyed else REASON.WRONG_ROUND)
    opened = messages(table, RoundOpened, receiver="p0")[0]
    refuses(table, "p0", "server", opened, REASON.UNEXPECTED_MESSAGE)
    assert all_commit(table)


def reopen(table: Table, attempt: int, without: str = "") -> Stamp:
    """A lying server opens a session of its own with everyone, or all but one; returns the stamp of a round 0 in it."""
    return session_of(table, attempt, *(name for name in table.participants if name != without))


@pytest.mark.parametrize("scheme", SECURE)
def test_a_spent_round_is_not_entered_without_one_of_its_cohort(scheme: str) -> None:
    """Once shares were released, another sum of the round could be subtracted: in any session, for ever."""
    table = lying_table(scheme, 5)
    table.tamper = lambda flight: None if isinstance(flight.message, ReleasedShares) else flight.message
    until(table, SurvivorProof)
    table.deliver_all()
    stamp = reopen(table, attempt=2, without="p4")
    for name in table.participants[:4]:
        refuses(table, name, "server", opening(table, stamp), REASON.DIFFERENCING)
    assert len(messages(table, MaskedInput, "p0")) == 1
    assert nobody_has_a_result(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_whoever_is_kept_from_voting_hears_from_the_others_that_its_update_may_be_in_a_sum(
    scheme: str,
) -> None:
    """t parties agree without p4, and their sum holds its update: the list that they state binds p4, too."""
    table = lying_table(scheme, 5)

    def tamper(flight: InFlight) -> Message | None:
        kept_back = isinstance(flight.message, SurvivorProof) and flight.receiver == "p4"
        return None if kept_back or isinstance(flight.message, ReleasedShares) else flight.message

    table.tamper = tamper
    until(table, SurvivorProof)
    table.deliver_all()
    assert {name: set(participant(table, name).record.spent) for name in table.participants} == {
        **{name: {0} for name in table.participants[:4]},
        table.participants[4]: set(),
    }
    stamp = reopen(table, attempt=2, without="p3")
    for name in (*table.participants[:3], "p4"):
        refuses(table, name, "server", opening(table, stamp), REASON.DIFFERENCING)


@pytest.mark.parametrize("scheme", SECURE)
def test_an_attempt_that_opened_nothing_may_be_repeated_with_fresh_masks(scheme: str) -> None:
    table = lying_table(scheme, 5)
    until(table, SurvivorList, "p0")
    table.wire.clear()
    stamp = reopen(table, attempt=1)
    for name in table.participants:
        assert say(table, "server", name, opening(table, stamp)) is None
    opening_move = RoundKeys if scheme == "masked" else SealedShares
    first, second = messages(table, opening_move, "p0")
    assert (first.stamp.attempt, second.stamp.attempt) == (0, 1)
    assert getattr(first, "keys", None) != getattr(second, "keys", ())
    assert getattr(first, "boxes", None) != getattr(second, "boxes", ())


@pytest.mark.parametrize("scheme", SECURE)
def test_rounds_and_attempts_never_go_back(scheme: str) -> None:
    table = lying_table(scheme, 5, rounds=3)
    while participant(table, "p0").rounds_done < 2 or participant(table, "p0").machine is not None:
        until(table, Message)
        step(table)
    session = participant(table, "p0").session
    assert session is not None
    for round_number in (0, 1):
        stamp = Stamp(session.id, round_number, 7)
        refuses(table, "p0", "server", opening_of_round(table, stamp), REASON.REPLAY)
    assert all_commit(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_round_after_which_none_can_follow_is_not_entered(scheme: str) -> None:
    """Whoever commits the largest number could not say how many rounds it has done: it would end later, by itself."""
    table = lying_table(scheme, 5, rounds=2)
    while participant(table, "p0").rounds_done < 1 or participant(table, "p0").machine is not None:
        until(table, Message)
        step(table)
    session = participant(table, "p0").session
    assert session is not None
    largest = opening_of_round(table, Stamp(session.id, DEFAULT_MAX_INTEGER))
    refuses(table, "p0", "server", largest, REASON.WRONG_ROUND)
    assert all_commit(table)


def opening_of_round(table: Table, stamp: Stamp) -> RoundOpened:
    honest = messages(table, RoundOpened)[0]
    assert isinstance(honest, RoundOpened)
    return replace(honest, stamp=replace(stamp, model_hash=honest.stamp.model_hash))


@pytest.mark.parametrize("scheme", SECURE)
def test_an_old_invitation_does_not_end_what_is_under_way(scheme: str) -> None:
    table = lying_table(scheme, 5, rounds=2, rekey=Rekey.ROUND)
    old = until(table, Invitation, "p0").message
    while not (participant(table, "p0").rounds_done == 1 and participant(table, "p0").machine is not None):
        until(table, Message)
        step(table)
    refuses(table, "p0", "server", old, REASON.REPLAY)
    assert all_commit(table)


@pytest.mark.parametrize(
    "lie", ["altered", "swapped", "another sender", "a neighbour's", "a stranger's", "twice"]
)
def test_relayed_seeds_that_the_server_touched_are_refused(lie: str) -> None:
    """On a ring of five p0 gets the bias seeds of p2 and p3 through the server."""
    table = lying_table("ampc", 5, graph="ring")
    honest = until(table, SeedsRelayed, "p0").message
    other = until(table, SeedsRelayed, "p1").message
    assert isinstance(honest, SeedsRelayed)
    assert isinstance(other, SeedsRelayed)
    ((origin, record),) = honest.sealed.items()
    (foreign,) = other.sealed.values()
    flipped = SealedRecord(bytes([record.ciphertext[0] ^ 1]) + record.ciphertext[1:], record.signature)
    sealed, reason = {
        "altered": ({origin: flipped}, REASON.BAD_SIGNATURE),
        "swapped": ({origin: foreign}, REASON.BAD_SIGNATURE),
        "another sender": ({P2 if origin != P2 else PartyId("p3"): record}, REASON.BAD_SIGNATURE),
        "a neighbour's": ({P1: record}, REASON.UNEXPECTED_MESSAGE),
        "a stranger's": ({PartyId("stranger"): record}, REASON.UNEXPECTED_MESSAGE),
        "twice": ({origin: record}, REASON.REPLAY),
    }[lie]
    if lie == "twice":
        flight = next(one for one in table.wire if one.message is honest)
        table.drop(flight)
        hand_over(table, flight)
    refuses(table, "p0", "server", replace(honest, sealed=sealed), reason)
    assert all_commit(table)


def test_relayed_seeds_that_the_server_keeps_back_stop_the_session() -> None:
    table = lying_table("ampc", 5, graph="ring")
    table.tamper = lambda flight: None if isinstance(flight.message, SeedsRelayed) else flight.message
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table) <= {REASON.TIMED_OUT, REASON.WITHDRAWN}
    assert not messages(table, MaskedInput)


def test_the_server_cannot_hand_a_joiner_a_model() -> None:
    table = lying_table("ampc", 5, rounds=2, absent=["p4"])
    until(table, MaskedInput)
    table.restart("p4")
    given = until(table, ModelGiven, "p4").message
    assert isinstance(given, ModelGiven)
    refuses(table, "p4", "server", given, REASON.UNEXPECTED_MESSAGE)
    refuses(table, "p4", "server", replace(given, box=np.zeros(8, dtype=np.uint8)), REASON.UNEXPECTED_MESSAGE)
    table.run()
    assert told(table, PartyId("p4")).commits[-1].model_hash == told(table, P0).commits[-1].model_hash
