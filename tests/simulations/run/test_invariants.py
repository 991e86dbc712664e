"""The invariants that every simulation is watched for: each one is seen when it breaks."""

from __future__ import annotations

import numpy as np
import pytest

from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import DecisionMade, RoundCommitted
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


def decided() -> InvariantMonitor:
    """A monitor to whom ALICE has stated that she gives her update of round 0 and releases shares of it."""
    monitor = InvariantMonitor()
    for decision in ("given_round", "spent_round"):
        monitor.noted(0.0, ALICE, DecisionMade({decision: 0, "attempt": 0}))
    return monitor


def violated(caught: pytest.ExceptionInfo[InvariantViolated]) -> str:
    return caught.value.name


def test_two_results_of_one_round_break_i3() -> None:
    monitor = decided()
    monitor.noted(0.0, ALICE, RoundCommitted(0, 0, (ALICE, BOB), b"one"))
    with pytest.raises(InvariantViolated) as caught:
        monitor.noted(0.0, BOB, RoundCommitted(0, 0, (ALICE, BOB), b"two"))
    assert violated(caught) == "I3"


def test_both_share_kinds_break_i4() -> None:
    monitor = decided()
    monitor.sent(0.0, ALICE, SERVER, released(self_masks=(BOB,)), 0)
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, released(keys=(BOB,)), 0)
    assert violated(caught) == "I4"


def test_shares_for_two_survivor_lists_of_a_round_break_i4() -> None:
    """For the same list again they do not: it opens the same sum."""
    monitor = decided()
    for attempt, survivors in enumerate([(ALICE, BOB), (ALICE, BOB), (ALICE, BOB, CAROL)]):
        listed = SurvivorList(Stamp(SESSION, 0, attempt), survivors, (), len(survivors))
        monitor.sent(0.0, SERVER, ALICE, listed, 0)
    monitor.sent(0.0, ALICE, SERVER, released(0, self_masks=(BOB,)), 0)
    monitor.sent(0.0, ALICE, SERVER, released(1, self_masks=(BOB,)), 0)
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, released(2, self_masks=(BOB,)), 0)
    assert violated(caught) == "I4"


def test_two_uploads_in_one_attempt_break_i5() -> None:
    monitor = decided()
    monitor.sent(0.0, ALICE, SERVER, MaskedInput(Stamp(SESSION), np.zeros(3, dtype="<u8")), 0)
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, MaskedInput(Stamp(SESSION), np.ones(3, dtype="<u8")), 0)
    assert violated(caught) == "I5"


def test_a_round_committed_twice_breaks_i6() -> None:
    monitor = decided()
    monitor.noted(0.0, ALICE, RoundCommitted(1, 0, (ALICE, BOB), b"one"))
    with pytest.raises(InvariantViolated) as caught:
        monitor.noted(0.0, ALICE, RoundCommitted(1, 0, (ALICE, BOB), b"one"))
    assert violated(caught) == "I6"


def test_another_set_of_a_round_breaks_i3_even_where_the_model_is_not_known() -> None:
    monitor = decided()
    monitor.noted(0.0, ALICE, RoundCommitted(0, 0, (ALICE, BOB), b""))
    with pytest.raises(InvariantViolated) as caught:
        monitor.noted(0.0, BOB, RoundCommitted(0, 0, (ALICE, CAROL), b""))
    assert violated(caught) == "I3"


def test_shares_that_leave_before_the_decision_to_spend_the_round_break_i4() -> None:
    monitor = InvariantMonitor()
    monitor.noted(0.0, ALICE, DecisionMade({"given_round": 0, "attempt": 0}))
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, released(self_masks=(BOB,)), 0)
    assert violated(caught) == "I4"


def test_an_upload_that_leaves_before_the_decision_to_give_it_breaks_i5() -> None:
    monitor = InvariantMonitor()
    monitor.noted(0.0, BOB, DecisionMade({"given_round": 0, "attempt": 0}))
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, MaskedInput(Stamp(SESSION), np.zeros(3, dtype="<u8")), 0)
    assert violated(caught) == "I5"
