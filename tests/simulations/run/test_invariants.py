"""The invariants that every simulation is watched for: each one is seen when it breaks."""

from __future__ import annotations

import numpy as np
import pytest

from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RoundCommitted
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.run.invariants import InvariantMonitor, InvariantViolated

ALICE, BOB, CAROL = PartyId("alice"), PartyId("bob"), PartyId("carol")
SESSION = bytes(32)


def released(
    attempt: int = 0, *, self_masks: tuple[PartyId, ...] = (), keys: tuple[PartyId, ...] = ()
) -> ReleasedShares:
    return ReleasedShares(
        Stamp(SESSION, 0, attempt), dict.fromkeys(self_masks, bytes(33)), dict.fromkeys(keys, bytes(33))
    )


def test_two_results_of_one_round_break_i3() -> None:
    monitor = InvariantMonitor()
    monitor.note_commit(ALICE, RoundCommitted(0, 0, (ALICE, BOB), b"one"))
    with pytest.raises(InvariantViolated, match="I3"):
        monitor.note_commit(BOB, RoundCommitted(0, 0, (ALICE, BOB), b"two"))


def test_both_share_kinds_break_i4() -> None:
    monitor = InvariantMonitor()
    monitor.note_message(ALICE, SERVER, released(self_masks=(BOB,)))
    with pytest.raises(InvariantViolated, match="I4"):
        monitor.note_message(ALICE, SERVER, released(keys=(BOB,)))


def test_shares_for_two_survivor_lists_of_a_round_break_i4() -> None:
    """For the same list again they do not: it opens the same sum."""
    monitor = InvariantMonitor()
    for attempt, survivors in enumerate([(ALICE, BOB), (ALICE, BOB), (ALICE, BOB, CAROL)]):
        listed = SurvivorList(Stamp(SESSION, 0, attempt), survivors, (), len(survivors))
        monitor.note_message(SERVER, ALICE, listed)
    monitor.note_message(ALICE, SERVER, released(0, self_masks=(BOB,)))
    monitor.note_message(ALICE, SERVER, released(1, self_masks=(BOB,)))
    with pytest.raises(InvariantViolated, match="I4"):
        monitor.note_message(ALICE, SERVER, released(2, self_masks=(BOB,)))


def test_two_uploads_in_one_attempt_break_i5() -> None:
    monitor = InvariantMonitor()
    monitor.note_message(ALICE, SERVER, MaskedInput(Stamp(SESSION), np.zeros(3, dtype="<u8")))
    with pytest.raises(InvariantViolated, match="I5"):
        monitor.note_message(ALICE, SERVER, MaskedInput(Stamp(SESSION), np.ones(3, dtype="<u8")))


def test_a_round_committed_twice_breaks_i6() -> None:
    monitor = InvariantMonitor()
    monitor.note_commit(ALICE, RoundCommitted(1, 0, (ALICE, BOB), b"one"))
    with pytest.raises(InvariantViolated, match="I6"):
        monitor.note_commit(ALICE, RoundCommitted(1, 0, (ALICE, BOB), b"one"))
