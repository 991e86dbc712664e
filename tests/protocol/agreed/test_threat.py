"""Thresholds keep secrets from coalitions and two survivor lists from both counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.agreed.threat import Threat, threshold_for
from veilsum.protocol.errors import ParameterError

holder_counts = st.integers(2, 5000)


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


@pytest.mark.parametrize("holders", [-1, 0, 1])
@pytest.mark.parametrize("threat", Threat)
def test_sharing_with_nobody_is_refused(holders: int, threat: Threat) -> None:
    with pytest.raises(ParameterError, match=f"not {holders}"):
        threshold_for(holders, threat)
