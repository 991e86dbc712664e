"""The sum of uploads holds each party of the attempt once, and what is refused leaves no trace in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from tests.support.snapshots import picture
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.ring import Ring, RingVector
from veilsum.protocol.secure_sum.uploads import MaskedInput, RunningTotal
from veilsum.protocol.wire.messages import Stamp

RING = Ring(32)
LENGTH = 3
COHORT = frozenset(PartyId(f"p{index}") for index in range(6))
OUTSIDER = PartyId("p9")


def vector_of(name: PartyId, length: int = LENGTH) -> RingVector:
    """Different for every party, and large enough to wrap around."""
    return np.full(length, 2**31 + int(name[1:]) * 7 + 1, dtype=RING.dtype)


def upload(name: PartyId) -> MaskedInput:
    return MaskedInput(Stamp(), vector_of(name))


def total_of(*names: PartyId, spent_cohort: frozenset[PartyId] | None = None) -> RunningTotal:
    total = RunningTotal(RING, LENGTH, spent_cohort)
    for name in names:
        total.add(name, upload(name), COHORT)
    return total


@given(st.permutations(sorted(COHORT)), st.integers(0, len(COHORT)))
def test_the_order_of_uploads_does_not_matter(order: list[PartyId], count: int) -> None:
    total = total_of(*order[:count])
    expected = sum(int(vector_of(name)[0]) for name in order[:count]) % 2**32
    assert total.vector.tolist() == [expected] * LENGTH
    assert total.survivors == tuple(sorted(order[:count]))


BAD_UPLOADS = {
    "a second one": (PartyId("p0"), vector_of(PartyId("p0")), AbortReason.REPLAY),
    "a second one of who was left out": (PartyId("p5"), vector_of(PartyId("p5")), AbortReason.REPLAY),
    "of an outsider": (OUTSIDER, vector_of(OUTSIDER), AbortReason.UNEXPECTED_MESSAGE),
    "too long": (PartyId("p2"), vector_of(PartyId("p2"), LENGTH + 1), AbortReason.BAD_VECTOR),
    "of another width": (PartyId("p2"), np.zeros(LENGTH, dtype="<u8"), AbortReason.BAD_VECTOR),
    "too long, of who is left out": (
        PartyId("p4"),
        vector_of(PartyId("p4"), LENGTH + 1),
        AbortReason.BAD_VECTOR,
    ),
}


@pytest.mark.parametrize("defect", BAD_UPLOADS)
def test_a_refused_upload_changes_nothing(defect: str) -> None:
    sender, vector, reason = BAD_UPLOADS[defect]
    spent_cohort = frozenset(map(PartyId, ("p0", "p1", "p2")))
    total = total_of(PartyId("p0"), PartyId("p5"), spent_cohort=spent_cohort)
    before = picture(total)
    with refusal(Rejection, reason=reason):
        total.add(sender, MaskedInput(Stamp(), vector), COHORT)
    assert picture(total) == before


@given(st.sets(st.sampled_from(sorted(COHORT))))
def test_once_a_sum_may_be_open_nobody_else_enters_it_and_nobody_else_is_waited_for(
    spent_cohort: set[PartyId],
) -> None:
    total = total_of(*sorted(COHORT), spent_cohort=frozenset(spent_cohort))
    assert total.parties == spent_cohort
    assert total.vector.tolist() == total_of(*spent_cohort).vector.tolist()
    assert total.silent(COHORT, COHORT) == frozenset()


@given(st.sets(st.sampled_from(sorted(COHORT))), st.sets(st.sampled_from(sorted(COHORT))))
def test_silent_are_those_who_are_awaited_and_have_not_uploaded(
    uploaded: set[PartyId], awaited: set[PartyId]
) -> None:
    assert total_of(*uploaded).silent({*awaited, OUTSIDER}, COHORT) == awaited - uploaded
