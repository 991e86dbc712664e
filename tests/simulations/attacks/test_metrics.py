"""Metrics: known values, symmetries, and the traps they were written against."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.simulations.attacks import metrics

RNG = np.random.default_rng(7)


def images(count: int, side: int = 8) -> np.ndarray:
    return RNG.random((count, 1, side, side)).astype(np.float32)


def test_an_image_is_like_itself() -> None:
    one = images(3)
    assert metrics.ssim(one, one) == pytest.approx(np.ones(3))
    assert metrics.relative_errors(one, one) == pytest.approx(np.zeros(3))
    assert (metrics.psnr(one, one) == 100).all()


@pytest.mark.parametrize("side", [8, 32])
def test_black_has_relative_error_one_and_noise_no_similarity(side: int) -> None:
    truth = images(4, side)
    assert metrics.relative_errors(np.zeros_like(truth), truth) == pytest.approx(np.ones(4))
    assert np.abs(metrics.ssim(images(4, side), truth)).max() < 0.5


def test_a_diverged_reconstruction_is_clamped_before_it_is_measured() -> None:
    """10^7 and NaN count as white and black, not as a triumph of the defence."""
    truth = images(1)
    assert (
        metrics.relative_errors(truth * 0 + 1e7, truth)[0] == metrics.relative_errors(truth * 0 + 1, truth)[0]
    )
    assert metrics.relative_errors(truth * np.nan, truth)[0] == pytest.approx(1)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_assignment_is_the_cheapest_of_all(size: int, seed: int) -> None:
    cost = np.random.default_rng(seed).random((size, size))
    found = metrics.assign(cost)
    assert sorted(found) == list(range(size))
    best = min(sum(cost[i, p[i]] for i in range(size)) for p in itertools.permutations(range(size)))
    assert cost[np.arange(size), found].sum() == pytest.approx(best)


def test_a_shuffled_batch_is_put_back_in_order() -> None:
    truth = images(6)
    order = RNG.permutation(6)
    assert (truth[order][metrics.matching(truth[order], truth)] == truth).all()


def test_label_distance_counts_the_multiset_not_the_order() -> None:
    truth = np.array([3, 3, 5, 1])
    assert metrics.label_distance(np.array([1, 3, 5, 3]), truth) == 0
    assert metrics.label_distance(np.array([3, 5, 5, 5]), truth) == 0.5


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.30850), (5, 10, 0.18709, 0.81291), (10, 10, 0.69150, 1.0), (1, 50, 0.00051, 0.10647)],
)
def test_confidence_intervals_are_those_of_clopper_and_pearson(
    successes: int, trials: int, low: float, high: float
) -> None:
    rate = metrics.success_rate(successes, trials)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=5e-5)


def test_no_trials_say_nothing() -> None:
    rate = metrics.success_rate(0, 0)
    assert math.isnan(rate.value)
    assert (rate.low, rate.high) == (0.0, 1.0)


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=30),
    st.lists(st.integers(-5, 5), min_size=1, max_size=30),
)
def test_auc_is_the_chance_that_a_member_scores_above_another(members: list[int], others: list[int]) -> None:
    pairs = [(m > o) + (m == o) / 2 for m in members for o in others]
    found = metrics.membership(np.array(members, float), np.array(others, float))
    assert found.auc == pytest.approx(sum(pairs) / len(pairs))


def test_the_threshold_comes_from_the_attackers_own_scores() -> None:
    members, others = np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 1.5])
    threshold = metrics.best_threshold(members, others)
    told = metrics.membership(np.array([5.0, 0.0]), np.array([-1.0, 9.0]), threshold)
    assert threshold == 1.5
    assert told.accuracy == 0.5


def test_tpr_at_one_percent_allows_one_false_alarm_in_a_hundred() -> None:
    others = np.arange(100.0)
    assert metrics.membership(np.array([98.5, 97.0]), others).tpr_at_1_percent_fpr == 0.5


def test_tracing_is_certain_with_good_and_lost_with_bad_reconstructions() -> None:
    truth, owners = images(20), np.repeat(np.arange(4), 5)
    good = metrics.tracing_distance(truth + 0.01, truth, owners)
    assert (good.by_index, good.by_participant) == (0, 0)
    bad = metrics.tracing_distance(np.zeros_like(truth), truth, owners)
    assert bad.by_index == 0.95
    assert bad.by_participant == 0.75


def test_distances_of_models_and_features() -> None:
    assert metrics.model_distance(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 1.0
    features = np.array([[0.0, 0.0], [2.0, 0.0]])
    assert metrics.feature_distance(features, np.array([1.0, 0.0])) == 1.0
    assert metrics.nearest_distance(features, np.array([[0.0, 0.0], [2.0, 1.0]])) == 0.5


def test_distances_between_features_as_they_should_be_are_squares_of_those_that_are_printed() -> None:
    features, private = np.array([[0.0, 3.0]]), np.array([[0.0, 0.0], [4.0, 3.0]])
    assert metrics.nearest_distance(features, private) == 9.0
    assert metrics.nearest_distance(features, private, squared=False) == 3.0
    assert metrics.feature_distance(features, private[1]) == 16.0
    assert metrics.feature_distance(features, private[1], squared=False) == 4.0
