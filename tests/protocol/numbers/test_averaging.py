"""The weighted mean of visible vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.numbers import averaging
from veilsum.protocol.numbers.averaging import weighted_mean


@settings(deadline=None)
@given(
    length=st.integers(0, 25),
    weights=st.lists(st.integers(0, 2**20), min_size=1, max_size=5).filter(any),
    block=st.integers(1, 30),
)
def test_the_mean_is_that_of_float64_whatever_the_size_of_blocks(
    length: int, weights: list[int], block: int
) -> None:
    """Vectors are float32, and every entry of the mean is right to the last bits of float64."""
    vectors = [np.sin(np.arange(length) + 7 * k).astype(np.float32) for k in range(len(weights))]
    before = averaging.BLOCK
    averaging.BLOCK = block
    try:
        found = weighted_mean(vectors, weights)
    finally:
        averaging.BLOCK = before
    expected = sum(
        w * v.astype(np.longdouble) for v, w in zip(vectors, weights, strict=True)
    ) / np.longdouble(sum(weights))
    assert found.dtype == np.float64
    assert found.shape == (length,)
    assert np.allclose(found, expected.astype(np.float64), rtol=0, atol=1e-15)


def test_the_vectors_are_left_as_they_were() -> None:
    vectors = [np.ones(3, dtype=np.float32), np.full(3, 5.0)]
    assert weighted_mean(vectors, [1, 3]).tolist() == [4.0, 4.0, 4.0]
    assert vectors[0].tolist() == [1.0] * 3
    assert vectors[1].tolist() == [5.0] * 3


@pytest.mark.parametrize("weights", [[], [1.0], [0.0, 0.0], [2.0, -1.0], [float("nan"), 1.0]])
def test_weights_that_make_no_mean_are_refused(weights: list[float]) -> None:
    with refusal(LocalProtocolError, "mean", "non-negative", "weight", "vector", "positive"):
        weighted_mean([np.zeros(2, dtype=np.float32)] * 2, weights)


def test_a_mean_of_no_vectors_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="needs one"):
        weighted_mean([], [])
