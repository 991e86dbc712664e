"""Thresholds keep secrets from coalitions and two survivor lists from both counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.agreed.threat import (
    Threat,
    agreement_threshold,
    smallest_cohort,
    tolerated_colluders,
)
from veilsum.protocol.errors import ParameterError

holder_counts = st.integers(2, 5000)


def threshold_for(participants: int, threat: Threat) -> int:
    """The threshold of a whole roster."""
    return agreement_threshold(participants, tolerated_colluders(participants, threat))


def most_liars(holders: int, threshold: int) -> int:
    """The largest c with 2t > n + c: so many holders may sign two survivor lists and only one will count."""
    return 2 * threshold - holders - 1


@given(holder_counts)
def test_semi_honest_is_the_smallest_majority(holders: int) -> None:
    threshold = threshold_for(holders, Threat.SEMI_HONEST)
    assert 2 * threshold > holders >= 2 * (threshold - 1)


@given(holder_counts)
def test_lying_tolerates_a_third_of_the_holders_as_liars(holders: int) -> None:
    threshold = threshold_for(holders, Threat.LYING)
    assert threshold <= holders
    assert 2 * threshold > holders + holders // 3


@given(holder_counts, st.data())
def test_no_split_of_the_honest_holders_gives_two_lists_enough_signatures(
    holders: int, data: st.DataObject
) -> None:
    threshold = threshold_for(holders, Threat.LYING)
    liars = data.draw(st.integers(0, most_liars(holders, threshold)))
    shown_first_list = data.draw(st.integers(0, holders - liars))
    shown_second_list = holders - liars - shown_first_list
    assert min(shown_first_list, shown_second_list) + liars < threshold


@given(holder_counts)
def test_one_liar_more_than_tolerated_breaks_the_rule(holders: int) -> None:
    threshold = threshold_for(holders, Threat.LYING)
    liars = most_liars(holders, threshold) + 1
    assert (holders - liars) // 2 + liars >= threshold


@pytest.mark.parametrize(
    ("holders", "semi_honest", "lying"),
    [(2, 2, 2), (3, 2, 3), (4, 3, 3), (5, 3, 4), (6, 4, 5), (10, 6, 7), (50, 26, 34), (100, 51, 67)],
)
def test_small_and_familiar_sizes(holders: int, semi_honest: int, lying: int) -> None:
    assert threshold_for(holders, Threat.SEMI_HONEST) == semi_honest
    assert threshold_for(holders, Threat.LYING) == lying


@pytest.mark.parametrize("participants", range(3, 61))
def test_whatever_session_the_server_picks_two_lists_do_not_both_count(participants: int) -> None:
    """And no smaller threshold would do."""
    colluders = tolerated_colluders(participants, Threat.LYING)
    for size in range(1, participants + 1):
        threshold = agreement_threshold(size, colluders)
        assert 2 * threshold > size + colluders >= 2 * (threshold - 1)
        assert threshold > min(size, colluders)


@pytest.mark.parametrize("participants", range(3, 61))
def test_at_the_whole_roster_the_threshold_is_a_majority_or_two_thirds(participants: int) -> None:
    assert threshold_for(participants, Threat.SEMI_HONEST) == participants // 2 + 1
    assert threshold_for(participants, Threat.LYING) == 2 * participants // 3 + 1


def test_two_thirds_of_a_small_session_would_let_two_lists_count() -> None:
    colluders = tolerated_colluders(20, Threat.LYING)
    assert colluders == 6
    assert 8 + colluders >= 2 * (2 * 8 // 3 + 1)
    assert 2 * agreement_threshold(8, colluders) > 8 + colluders


@pytest.mark.parametrize("participants", range(3, 61))
def test_the_smallest_cohort_can_agree_and_has_two_honest_members(participants: int) -> None:
    colluders = tolerated_colluders(participants, Threat.LYING)
    cohort = smallest_cohort(colluders)
    assert agreement_threshold(cohort, colluders) <= cohort
    assert cohort - colluders >= 2


@pytest.mark.parametrize(
    ("participants", "colluders", "threshold", "cohort"),
    [(3, 1, 3, 3), (4, 1, 3, 3), (5, 1, 4, 3), (8, 2, 6, 4), (20, 6, 14, 8)],
)
def test_the_defaults_of_familiar_rosters(
    participants: int, colluders: int, threshold: int, cohort: int
) -> None:
    assert tolerated_colluders(participants, Threat.LYING) == colluders
    assert agreement_threshold(participants, colluders) == threshold
    assert smallest_cohort(colluders) == cohort


@pytest.mark.parametrize(("size", "colluders"), [(0, 0), (-1, 2), (4, -1)])
def test_a_threshold_among_nobody_is_refused(size: int, colluders: int) -> None:
    with pytest.raises(ParameterError, match="cannot agree"):
        agreement_threshold(size, colluders)
