"""A server that lies about keys, seeds, sessions and attempts: changes are noticed, repetitions refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_sessions import opening, session_of
from tests.support.tables.lying_table import Flight, LyingTable
from veilsum.protocol.agreed.parameters import Rekey
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.session import (
    HelloRecord,
    Invitation,
    RoundOpened,
    SessionOpened,
)
from veilsum.protocol.schemes.ampc.messages import ModelGiven, SealedRecord, SeedsRelayed
from veilsum.protocol.schemes.masked.messages import CohortKeys, KeyRecord, RoundKeys
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
P0, P1, P2 = (PartyId(f"p{index}") for index in range(3))
OTHER_KEY = AgreementKey(Secret(bytes([9]) * 32)).public
LOW_ORDER = (1).to_bytes(32, "little")


def all_commit(table: LyingTable) -> bool:
    table.run()
    return all(len(table.told[name].commits) == table.rounds for name in table.names)


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
        "our own changed": ({**keys, P0: replace(keys[P0], key=OTHER_KEY)}, REASON.EQUIVOCATION),
        "our own missing": ({name: key for name, key in keys.items() if name != P0}, REASON.EQUIVOCATION),
        "too few": ({P0: keys[P0], P1: keys[P1]}, REASON.COHORT_TOO_SMALL),
        "a stranger": ({**keys, PartyId("stranger"): replace(keys[P1], key=OTHER_KEY)}, REASON.UNKNOWN_PARTY),
    }


KEY_LIES = tuple(lying_keys(dict.fromkeys((P0, P1, P2), KeyRecord(bytes(32), bytes(32), bytes(64)))))


@pytest.mark.parametrize("lie", KEY_LIES)
def test_tampered_round_keys_are_refused(lie: str) -> None:
    table = LyingTable("masked", 5)
    honest = table.until(CohortKeys, "p0").message
    assert isinstance(honest, CohortKeys)
    keys, reason = lying_keys(honest.keys)[lie]
    table.refuses("p0", "server", replace(honest, keys=keys, size=len(keys)), reason)
    assert all_commit(table)


def test_a_round_key_of_an_earlier_round_does_not_serve_again() -> None:
    table = LyingTable("masked", 5, rounds=2)
    old = table.until(RoundKeys, sender="p1").message
    assert isinstance(old, RoundKeys)
    table.until(RoundOpened, "p0")
    while True:
        later = table.until(CohortKeys, "p0").message
        assert isinstance(later, CohortKeys)
        if later.stamp.round == 1:
            break
        table.step()
    detail = table.refuses(
        "p0", "server", replace(later, keys={**later.keys, P1: old.keys}), REASON.WRONG_MODEL
    )
    assert "p1" in detail
    forged = replace(old.keys, model_hash=later.stamp.model_hash)
    table.refuses("p0", "server", replace(later, keys={**later.keys, P1: forged}), REASON.BAD_SIGNATURE)
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
    table = LyingTable(scheme, 5)
    honest = table.until(SessionOpened, "p0").message
    assert isinstance(honest, SessionOpened)
    hellos, reason = lying_hellos(honest.hellos)[lie]
    table.refuses("p0", "server", SessionOpened(honest.stamp, hellos), reason)
    assert table.participant("p0").session is None


@pytest.mark.parametrize("scheme", SECURE)
def test_a_session_id_that_does_not_follow_from_the_hellos_is_refused(scheme: str) -> None:
    table = LyingTable(scheme, 5)
    honest = table.until(SessionOpened, "p0").message
    assert isinstance(honest, SessionOpened)
    table.refuses("p0", "server", replace(honest, stamp=Stamp(bytes(32))), REASON.WRONG_SESSION)
    assert all_commit(table)


FOR_P0 = (CohortKeys, DeliveredShares, SurvivorList, SurvivorProof)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("rekeyed", [False, True])
def test_messages_of_an_earlier_round_or_session_belong_nowhere(scheme: str, rekeyed: bool) -> None:
    """All that the server told p0 in round 0 is refused in round 1, in the same session and in another."""
    table = LyingTable(scheme, 5, rounds=2, rekey=Rekey.ROUND if rekeyed else Rekey.EPOCH)
    table.until(MaskedInput, sender="p0")
    while table.participant("p0").rounds_done == 0:
        table.step()
    table.until(DeliveredShares, "p0")
    stale = [
        message
        for kind in FOR_P0
        for message in table.messages(kind, receiver="p0")
        if message.stamp.round == 0
    ]
    assert len(stale) >= 3
    for message in stale:
        table.refuses("p0", "server", message, REASON.WRONG_SESSION if rekeyed else REASON.WRONG_ROUND)
    opened = table.messages(RoundOpened, receiver="p0")[0]
    table.refuses("p0", "server", opened, REASON.UNEXPECTED_MESSAGE)
    assert all_commit(table)


def reopen(table: LyingTable, attempt: int, without: str = "") -> Stamp:
    """A lying server opens a session of its own with everyone, or all but one; returns the stamp of a round 0 in it."""
    return session_of(table, attempt, *(name for name in table.names if name != without))


@pytest.mark.parametrize("scheme", SECURE)
def test_a_spent_round_is_not_entered_without_one_of_its_cohort(scheme: str) -> None:
    """Once shares were released, another sum of the round could be subtracted: in any session, for ever."""
    table = LyingTable(scheme, 5)
    table.tamper = lambda flight: None if isinstance(flight.message, ReleasedShares) else flight.message
    table.until(SurvivorProof)
    table.settle()
    stamp = reopen(table, attempt=2, without="p4")
    for name in table.names[:4]:
        table.refuses(name, "server", opening(table, stamp), REASON.DIFFERENCING)
    assert len(table.messages(MaskedInput, "p0")) == 1
    assert table.nobody_has_a_result()


@pytest.mark.parametrize("scheme", SECURE)
def test_whoever_is_kept_from_voting_is_not_spent_though_its_update_may_be_in_the_sum(scheme: str) -> None:
    """What remains possible: t parties agree without p4, their sum holds p4's update, and p4 cannot know.

    A second attempt may open another sum with it. Each sum costs the server at least t - c honest parties that come
    back for the same sum only, so that every combination of opened sums holds at least t - c honest updates.
    """
    table = LyingTable(scheme, 5)

    def tamper(flight: Flight) -> Message | None:
        kept_back = isinstance(flight.message, SurvivorProof) and flight.receiver == "p4"
        return None if kept_back or isinstance(flight.message, ReleasedShares) else flight.message

    table.tamper = tamper
    table.until(SurvivorProof)
    table.settle()
    assert {name: set(table.participant(name).record.spent) for name in table.names} == {
        **{name: {0} for name in table.names[:4]},
        table.names[4]: set(),
    }
    stamp = reopen(table, attempt=2, without="p3")
    for name in table.names[:3]:
        table.refuses(name, "server", opening(table, stamp), REASON.DIFFERENCING)
    assert table.say("server", "p4", opening(table, stamp)) is None


@pytest.mark.parametrize("scheme", SECURE)
def test_an_attempt_that_opened_nothing_may_be_repeated_with_fresh_masks(scheme: str) -> None:
    table = LyingTable(scheme, 5)
    table.until(SurvivorList, "p0")
    table.wire.clear()
    stamp = reopen(table, attempt=1)
    for name in table.names:
        assert table.say("server", name, opening(table, stamp)) is None
    opening_move = RoundKeys if scheme == "masked" else SealedShares
    first, second = table.messages(opening_move, "p0")
    assert (first.stamp.attempt, second.stamp.attempt) == (0, 1)
    assert getattr(first, "keys", None) != getattr(second, "keys", ())
    assert getattr(first, "boxes", None) != getattr(second, "boxes", ())


@pytest.mark.parametrize("scheme", SECURE)
def test_rounds_and_attempts_never_go_back(scheme: str) -> None:
    table = LyingTable(scheme, 5, rounds=3)
    while table.participant("p0").rounds_done < 2 or table.participant("p0").machine is not None:
        table.until(Message)
        table.step()
    session = table.participant("p0").session
    assert session is not None
    for round_number in (0, 1):
        stamp = Stamp(session.id, round_number, 7)
        table.refuses("p0", "server", opening_of_round(table, stamp), REASON.REPLAY)
    assert all_commit(table)


def opening_of_round(table: LyingTable, stamp: Stamp) -> RoundOpened:
    honest = table.messages(RoundOpened)[0]
    assert isinstance(honest, RoundOpened)
    return replace(honest, stamp=replace(stamp, model_hash=honest.stamp.model_hash))


@pytest.mark.parametrize("scheme", SECURE)
def test_an_old_invitation_does_not_end_what_is_under_way(scheme: str) -> None:
    table = LyingTable(scheme, 5, rounds=2, rekey=Rekey.ROUND)
    old = table.until(Invitation, "p0").message
    while not (table.participant("p0").rounds_done == 1 and table.participant("p0").machine is not None):
        table.until(Message)
        table.step()
    table.refuses("p0", "server", old, REASON.REPLAY)
    assert all_commit(table)


@pytest.mark.parametrize(
    "lie", ["altered", "swapped", "another sender", "a neighbour's", "a stranger's", "twice"]
)
def test_relayed_seeds_that_the_server_touched_are_refused(lie: str) -> None:
    """On a ring of five p0 gets the bias seeds of p2 and p3 through the server."""
    table = LyingTable("ampc", 5, graph="ring")
    honest = table.until(SeedsRelayed, "p0").message
    other = table.until(SeedsRelayed, "p1").message
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
        table.deliver(flight)
    table.refuses("p0", "server", replace(honest, sealed=sealed), reason)
    assert all_commit(table)


def test_relayed_seeds_that_the_server_keeps_back_stop_the_session() -> None:
    table = LyingTable("ampc", 5, graph="ring")
    table.tamper = lambda flight: None if isinstance(flight.message, SeedsRelayed) else flight.message
    table.run()
    assert table.nobody_has_a_result()
    assert table.reasons() <= {REASON.TIMED_OUT, REASON.WITHDRAWN}
    assert not table.messages(MaskedInput)


def test_the_server_cannot_hand_a_joiner_a_model() -> None:
    table = LyingTable("ampc", 5, rounds=2, absent=["p4"])
    table.until(MaskedInput)
    table.seat("p4")
    given = table.until(ModelGiven, "p4").message
    assert isinstance(given, ModelGiven)
    table.refuses("p4", "server", given, REASON.UNEXPECTED_MESSAGE)
    table.refuses("p4", "server", replace(given, box=np.zeros(8, dtype=np.uint8)), REASON.UNEXPECTED_MESSAGE)
    table.run()
    assert table.told[PartyId("p4")].commits[-1].model_hash == table.told[P0].commits[-1].model_hash
