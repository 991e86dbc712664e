"""An attempt goes on with enough parties, and once a sum of its round may be open with all of that sum."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from tests.support.tables.server_context import opened_session
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.phases import ServerPhase
from veilsum.protocol.secure_sum.attendance import Attendance

PHASE = next(iter(ServerPhase))
NAMES = tuple(PartyId(f"p{index}") for index in range(5))
SETS = [frozenset(one) for one in chain.from_iterable(combinations(NAMES, size) for size in range(6))]


@pytest.mark.parametrize("minimum", [3, 4, 5])
def test_fewer_than_the_minimum_are_refused_with_the_names_of_the_missing(minimum: int) -> None:
    _, context = opened_session(5, min_parties=minimum)
    attendance = Attendance(context)
    assert attendance.awaited == set(NAMES)
    for present in SETS:
        failed = attendance.refusal(present, PHASE)
        assert (failed is None) == (len(present) >= minimum)
        if failed is not None:
            assert failed.reason is AbortReason.COHORT_TOO_SMALL
            assert failed.missing == tuple(sorted(set(NAMES) - present))


def test_a_sum_that_may_be_open_is_repeated_by_its_own_parties_only() -> None:
    _, context = opened_session(5, min_parties=3)
    spent_cohort = frozenset(NAMES[:3])
    context.record.spend(context.stamp, tuple(sorted(spent_cohort)), NAMES)
    attendance = Attendance(context)
    assert attendance.spent_cohort == spent_cohort
    for present in (one for one in SETS if len(one) >= 3):
        failed = attendance.refusal(present, PHASE)
        assert (failed is None) == (spent_cohort <= present)
        if failed is not None:
            assert failed.reason is AbortReason.DIFFERENCING
