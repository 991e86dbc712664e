"""The smallest neighbourhood that meets all three bounds, recomputed here by another road."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.agreed.sizing import NeighbourhoodSize, find_degree_and_threshold
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import ParameterError

GOLDEN = [
    (100, 0.05, 0.05, Threat.SEMI_HONEST, 12, 6),
    (100, 0.05, 0.05, Threat.LYING, 16, 11),
    (100, 0.2, 0.3, Threat.SEMI_HONEST, 48, 21),
    (100, 0.2, 0.3, Threat.LYING, 82, 52),
    (1000, 0.05, 0.05, Threat.SEMI_HONEST, 30, 17),
    (1000, 0.05, 0.05, Threat.LYING, 52, 37),
    (1000, 0.2, 0.3, Threat.SEMI_HONEST, 140, 67),
    (1000, 0.2, 0.3, Threat.LYING, 642, 409),
    (100, 0.33, 0.33, Threat.SEMI_HONEST, 68, 34),
]


def at_least(population: int, marked: int, draws: int, count: int) -> Fraction:
    """P[at least `count` of `draws` are marked], term by term from the definition."""
    ways = sum(
        math.comb(marked, x) * math.comb(population - marked, draws - x)
        for x in range(max(0, count), min(draws, marked) + 1)
        if draws - x <= population - marked
    )
    return Fraction(ways, math.comb(population, draws))


def meets_all_bounds(
    parties: int, corrupt: int, dropped: int, threat: Threat, size: NeighbourhoodSize, population: int
) -> bool:
    k, t = size.k, size.t
    exposing = t if threat is Threat.SEMI_HONEST else 2 * t - k
    gone = min(corrupt + dropped, population)
    return (
        parties * at_least(population, corrupt, k, exposing) <= Fraction(1, 2**40)
        and parties * at_least(population, gone, k, k) <= Fraction(1, 2**40)
        and math.comb(parties, 2) * at_least(population, gone, k, k) <= Fraction(1, 2**40)
        and parties * at_least(population, dropped, k, k - t + 1) <= Fraction(1, 2**20)
    )


@pytest.mark.parametrize(("parties", "corrupt", "dropout", "threat", "golden_k", "golden_t"), GOLDEN)
def test_published_sizes_are_not_exceeded_and_all_bounds_hold(
    parties: int, corrupt: float, dropout: float, threat: Threat, golden_k: int, golden_t: int
) -> None:
    """Both when neighbours are drawn from all n parties and when they are drawn from the n - 1 others."""
    size = find_degree_and_threshold(parties, corrupt, dropout, threat)
    assert size.k <= golden_k
    assert size.t <= golden_t
    assert size.k % 2 == 0
    for population in (parties - 1, parties):
        counts = round(parties * corrupt), round(parties * dropout)
        assert meets_all_bounds(parties, *counts, threat, size, population)


@settings(max_examples=60, deadline=None)
@given(st.integers(7, 60), st.integers(0, 30), st.integers(0, 30), st.sampled_from(Threat))
def test_the_answer_is_the_first_feasible_pair_of_an_exhaustive_search(
    parties: int, corrupt_percent: int, dropout_percent: int, threat: Threat
) -> None:
    corrupt = math.ceil(Fraction(corrupt_percent * parties, 100))
    dropped = math.ceil(Fraction(dropout_percent * parties, 100))
    feasible = (
        size
        for k in range(6, parties, 2)
        for t in range(2, k + 1)
        if meets_all_bounds(parties, corrupt, dropped, threat, size := NeighbourhoodSize(k, t), parties - 1)
    )
    expected = next(feasible, None)
    if expected is None:
        with refusal(ParameterError, "k-regular", parties, threat.value, "complete"):
            find_degree_and_threshold(parties, corrupt_percent / 100, dropout_percent / 100, threat)
    else:
        found = find_degree_and_threshold(parties, corrupt_percent / 100, dropout_percent / 100, threat)
        assert found == expected


def test_no_adversary_and_no_dropout_still_gets_six_neighbours_and_two_holders() -> None:
    assert find_degree_and_threshold(1000, 0, 0, Threat.SEMI_HONEST) == NeighbourhoodSize(6, 2)
    assert find_degree_and_threshold(1000, 0, 0, Threat.LYING) == NeighbourhoodSize(6, 4)


def test_fractions_mean_the_decimal_that_was_written() -> None:
    """0.07 * 100 is 7.000000000000001 in binary; seven parties of a hundred are meant."""
    assert find_degree_and_threshold(100, 0.07, 0.07, Threat.LYING) == find_degree_and_threshold(
        100, 0.0601, 0.0601, Threat.LYING
    )


@pytest.mark.parametrize("threat", Threat)
def test_stricter_bounds_never_need_fewer_neighbours(threat: Threat) -> None:
    sizes = [find_degree_and_threshold(500, 0.1, 0.1, threat, security_bits=bits).k for bits in (20, 40, 60)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_the_impossible_is_refused_with_the_numbers_and_the_remedy() -> None:
    with refusal(ParameterError, "k-regular", 100, 34, "lying", "complete"):
        find_degree_and_threshold(100, 0.34, 0.34, Threat.LYING)
    with refusal(ParameterError, "k-regular", 7, 6, "semi-honest", "complete"):
        find_degree_and_threshold(7, 0.99, 0.99, Threat.SEMI_HONEST)


def test_all_bad_parameters_are_reported_together() -> None:
    with pytest.raises(ParameterError) as refused:
        find_degree_and_threshold(6, -0.1, 1.0, Threat.LYING, security_bits=0, failure_bits=0)
    assert len(refused.value.problems) == 5
    require_mentions(refused.value.problems[0], 6, "neighbours")


def test_not_a_number_is_no_fraction() -> None:
    with pytest.raises(ParameterError, match="corrupt_fraction nan"):
        find_degree_and_threshold(100, math.nan, 0.1, Threat.LYING)
