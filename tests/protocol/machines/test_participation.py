"""What a participant remembers of sums that may be open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.participation import COHORTS_COMPARED, ParticipationRecord, Spent
from veilsum.protocol.wire.messages import Stamp

NAMES = tuple(PartyId(f"p{number}") for number in range(5))
COHORTS = st.frozensets(st.sampled_from(NAMES), min_size=1)
HASHES = st.binary(min_size=32, max_size=32)


@given(first=COHORTS, second=COHORTS)
def test_a_spent_round_is_open_to_its_own_cohort_alone(
    first: frozenset[PartyId], second: frozenset[PartyId]
) -> None:
    record = ParticipationRecord()
    record.spend(Stamp(round=3), first, NAMES)
    record.require_same_cohort(2, second)
    if first == second:
        record.require_same_cohort(3, second)
        return
    with pytest.raises(Rejection) as refused:
        record.require_same_cohort(3, second)
    assert refused.value.reason is AbortReason.DIFFERENCING


@given(cohort=COHORTS, others=COHORTS, parties=COHORTS)
def test_a_spent_round_is_repeated_by_all_of_its_cohort_and_by_nobody_who_took_no_part(
    cohort: frozenset[PartyId], others: frozenset[PartyId], parties: frozenset[PartyId]
) -> None:
    record = ParticipationRecord()
    record.spend(Stamp(round=3), cohort, cohort | others)
    record.require_repeatable(4, parties)
    if cohort <= parties <= cohort | others:
        record.require_repeatable(3, parties)
    else:
        named = min(cohort - parties or parties - cohort - others)
        with refusal(Rejection, named, reason=AbortReason.DIFFERENCING):
            record.require_repeatable(3, parties)


@given(
    models=st.lists(HASHES, min_size=2, max_size=2, unique=True),
    updates=st.lists(HASHES, min_size=3, max_size=3),
)
def test_one_model_gets_one_update(models: list[bytes], updates: list[bytes]) -> None:
    """Also after another model was in between, and whether the round was spent or not."""
    record, stamp = ParticipationRecord(), Stamp(round=3)
    record.give(stamp, models[0], updates[0])
    record.require_same_update(3, models[1], updates[1])
    record.give(stamp, models[1], updates[1])
    record.require_same_update(3, models[0], updates[0])
    record.require_same_update(4, models[0], updates[2])
    if updates[2] != updates[0]:
        with refusal(Rejection, "bit", reason=AbortReason.DIFFERENCING):
            record.require_same_update(3, models[0], updates[2])


def test_no_round_follows_a_later_one_whose_updates_are_remembered_in_its_place() -> None:
    record = ParticipationRecord()
    for round_number in (3, 4):
        record.give(Stamp(round=round_number), bytes(32), bytes(32))
    for allowed in (4, 5):
        record.require_repeatable(allowed, NAMES)
    with pytest.raises(Rejection) as refused:
        record.require_repeatable(3, NAMES)
    assert refused.value.reason is AbortReason.REPLAY


@given(cohort=COHORTS, model=HASHES, update=HASHES)
def test_the_decisions_are_all_that_a_restarted_party_needs(
    cohort: frozenset[PartyId], model: bytes, update: bytes
) -> None:
    before, after = ParticipationRecord(), ParticipationRecord()
    for attempt in range(2):
        stamp = Stamp(round=3, attempt=attempt)
        after.note(before.give(stamp, bytes([attempt]) + model[1:], update).decision)
        after.note(before.spend(stamp, cohort, NAMES).decision)
    assert after == before
    assert after.given.updates == {bytes([attempt]) + model[1:]: update for attempt in range(2)}
    after.note({"round": 4, "attempt": 0})
    assert after == before


def test_only_the_last_spent_round_keeps_its_details() -> None:
    record = ParticipationRecord()
    record.spend(Stamp(round=3), NAMES, NAMES)
    record.spend(Stamp(round=4), NAMES, NAMES)
    assert record.spent == {3: None, 4: Spent(frozenset(NAMES), frozenset(NAMES))}
    with refusal(Rejection, "known", reason=AbortReason.DIFFERENCING):
        record.require_repeatable(3, NAMES)


def test_a_round_that_was_spent_without_a_cohort_is_never_repeated() -> None:
    record = ParticipationRecord()
    record.spend(Stamp(round=3), (), NAMES)
    assert record.cohorts == []
    for refused in (record.require_repeatable, record.require_same_cohort):
        with pytest.raises(Rejection):
            refused(3, NAMES)


@pytest.mark.parametrize(
    ("earlier", "now", "exposed"),
    [
        ([], "abcdef", ""),
        (["abcdef"], "abcdef", ""),
        (["abcdef"], "abcde", "f"),
        (["abcdef"], "abcd", "ef"),
        (["abcdef"], "abc", ""),
        (["abcdef", "abc"], "abcd", "def"),
        (["abcdefgh", "abcdef"], "abcd", "efgh"),
    ],
)
def test_parties_in_the_very_same_sums_hide_each_other_if_they_are_enough(
    earlier: list[str], now: str, exposed: str
) -> None:
    """With a minimum of three; a party that is missing once stands alone in the difference of two sums."""
    record = ParticipationRecord()
    for cohort in earlier:
        record.remember(frozenset(map(PartyId, cohort)))
    assert record.exposed_by(frozenset(map(PartyId, now)), 3) == tuple(exposed)


def test_only_the_latest_different_cohorts_are_compared() -> None:
    record = ParticipationRecord()
    odd = frozenset(map(PartyId, "abcde"))
    record.remember(odd)
    for index in range(COHORTS_COMPARED):
        record.remember(frozenset(map(PartyId, ("x", "y", "z", f"p{index}"))))
    assert odd not in record.cohorts
    assert len(record.cohorts) == COHORTS_COMPARED
