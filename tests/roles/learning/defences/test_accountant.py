"""The privacy accountant: the figures of published tutorials and libraries come out of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.errors import ParameterError
from veilsum.roles.learning.defences.dp.accountant import gaussian_loss, laplace_loss, log_moment

MNIST = 256 / 60000

# (rate, sigma, steps, delta, epsilon by Renyi divergences, epsilon by the privacy loss distribution), from the
# dp-accounting library, version 0.6.0, with its default orders.
COMPUTED_ELSEWHERE = [
    (MNIST, 1.3, 3515, 1e-5, 0.9544295, 0.8644587),
    (MNIST, 1.1, 14062, 1e-5, 2.5965559, 2.3816860),
    (MNIST, 0.7, 10546, 1e-5, 6.3194645, 5.6394467),
    (0.01, 4.0, 10000, 1e-5, 1.0354901, 0.9469993),
    (1.0, 1.0, 1, 1e-5, 4.7285071, 4.3771781),
    (1.0, 5.0, 100, 1e-5, 10.7255097, 9.9972562),
    (16 / 287, 1.0, 90, 1e-5, 4.2976993, 3.7327426),
    (16 / 287, 0.5, 90, 1e-5, 21.7786894, 18.8831357),
    (0.1, 2.0, 500, 1e-6, 6.6792928, 6.2167000),
    (0.5, 10.0, 50, 1e-5, 1.5042793, 1.3767944),
    (0.001, 0.6, 1000, 1e-6, 3.1410486, 2.1066677),
    (1.0, 0.3, 3, 1e-5, 42.8454933, 40.5433818),
]


@pytest.mark.parametrize(("rate", "sigma", "steps", "delta", "renyi", "exact"), COMPUTED_ELSEWHERE)
def test_epsilon_is_that_of_a_well_kept_library(
    rate: float, sigma: float, steps: int, delta: float, renyi: float, exact: float
) -> None:
    """Our finer grid of orders may find a slightly smaller bound; none lies below the exact value."""
    epsilon = gaussian_loss(rate, sigma, steps, delta).epsilon
    assert exact <= epsilon <= renyi * (1 + 1e-6)
    assert epsilon > renyi * 0.99


@pytest.mark.parametrize(
    ("sigma", "epochs", "published"), [(1.12, 60, 2.92), (0.6, 30, 9.74), (1.2, 10, 1.20)]
)
def test_published_values_of_a_tutorial_come_out_with_the_conversion_it_used(
    sigma: float, epochs: int, published: float
) -> None:
    """TensorFlow Privacy's tutorial, MNIST in batches of 256: epsilon = divergence + log(1 / delta) / (a - 1)."""
    steps = epochs * 60000 // 256
    orders = [1 + tenth / 10 for tenth in range(1, 100)] + list(range(11, 65))
    epsilon = min((steps * log_moment(MNIST, sigma, order) + math.log(1e5)) / (order - 1) for order in orders)
    assert epsilon == pytest.approx(published, abs=0.02)
    assert gaussian_loss(MNIST, sigma, steps, 1e-5).epsilon < epsilon


@given(st.floats(0.001, 0.9), st.floats(0.4, 8), st.integers(2, 12))
def test_the_sum_over_whole_orders_is_the_mean_it_stands_for(rate: float, sigma: float, order: int) -> None:
    z = np.linspace(-14 * sigma, order + 14 * sigma, 40001)
    ratio = order * np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * z - 1) / (2 * sigma**2))
    density = -(z**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
    terms = ratio + density
    expected = terms.max() + math.log(np.exp(terms - terms.max()).sum() * (z[1] - z[0]))
    assert log_moment(rate, sigma, order) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.floats(0.001, 0.9), st.floats(0.4, 8), st.integers(1, 8))
def test_fractional_orders_lie_below_the_chord_between_whole_ones(
    rate: float, sigma: float, order: int
) -> None:
    """The logarithm of a moment is convex in its order."""
    chord = 0.5 * (log_moment(rate, sigma, order) + log_moment(rate, sigma, order + 1))
    assert log_moment(rate, sigma, order + 0.5) <= chord + 1e-9


@settings(max_examples=6)
@given(st.floats(0.01, 0.9), st.floats(0.5, 5), st.integers(1, 300))
def test_more_noise_fewer_steps_and_rarer_samples_never_cost_more(
    rate: float, sigma: float, steps: int
) -> None:
    epsilon = gaussian_loss(rate, sigma, steps, 1e-5).epsilon
    assert gaussian_loss(rate, sigma * 1.5, steps, 1e-5).epsilon <= epsilon
    assert gaussian_loss(rate, sigma, steps + 50, 1e-5).epsilon >= epsilon
    assert gaussian_loss(rate / 2, sigma, steps, 1e-5).epsilon <= epsilon
    assert gaussian_loss(rate, sigma, steps, 1e-6).epsilon >= epsilon
    assert laplace_loss(rate, sigma * 2, steps).epsilon < laplace_loss(rate, sigma, steps).epsilon


def test_laplace_steps_add_up_and_sampling_amplifies() -> None:
    assert laplace_loss(1.0, 2.0, 3).epsilon == pytest.approx(1.5)
    assert laplace_loss(0.1, 1.0, 1).epsilon == pytest.approx(math.log(1 + 0.1 * (math.e - 1)))
    assert laplace_loss(0.1, 1.0, 1).delta == 0
    assert laplace_loss(0.5, 1e-4, 2).epsilon == pytest.approx(2e4)


def test_no_noise_protects_nothing_and_no_step_costs_nothing() -> None:
    assert gaussian_loss(0.1, 0.0, 1, 1e-5).epsilon == math.inf
    assert laplace_loss(0.1, 0.0, 1).epsilon == math.inf
    assert gaussian_loss(0.1, 0.0, 0, 1e-5).epsilon == 0
    assert laplace_loss(0.1, 1.0, 0).epsilon == 0
    assert math.isfinite(gaussian_loss(0.5, 0.01, 10, 1e-5).epsilon)


def test_impossible_arguments_are_refused_together() -> None:
    with pytest.raises(ParameterError) as caught:
        gaussian_loss(0.0, math.nan, -1, 1e-5)
    assert len(caught.value.problems) == 3
    with pytest.raises(ParameterError, match="delta"):
        gaussian_loss(0.5, 1.0, 1, 0.0)
