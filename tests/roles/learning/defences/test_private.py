"""The random numbers behind the defences: the distributions that they claim, from the party's own entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.defences.private import KEY_BYTES, PrivateKey
from veilsum.roles.process.entropy import SeededEntropy

KEY = PrivateKey.draw(SeededEntropy(5))
MANY = 200_000


def error_function_of(values: np.ndarray) -> np.ndarray:
    """The normal distribution function."""
    return np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in values])


def largest_gap(sample: np.ndarray, expected: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of a sorted sample, times the root of its size."""
    return float(
        np.abs(expected - np.arange(1, sample.size + 1) / sample.size).max() * math.sqrt(sample.size)
    )


def test_gaussian_noise_is_normally_distributed() -> None:
    sample = np.sort(KEY.stream("test").normal(MANY))
    assert largest_gap(sample, error_function_of(sample)) < 2


def test_laplace_noise_is_laplace_distributed() -> None:
    sample = np.sort(KEY.stream("test").laplace(MANY))
    expected = np.where(sample < 0, 0.5 * np.exp(-np.abs(sample)), 1 - 0.5 * np.exp(-np.abs(sample)))
    assert largest_gap(sample, expected) < 2


def test_uniform_numbers_are_never_zero_and_coins_have_their_probability() -> None:
    stream = KEY.stream("test")
    numbers = stream.uniform(MANY)
    assert numbers.min() > 0
    assert numbers.max() <= 1
    assert abs(stream.chosen(MANY, 0.05).size / MANY - 0.05) < 0.003
    assert stream.chosen(100, 1.0).tolist() == list(range(100))
    assert abs(stream.signs(MANY).mean()) < 0.01


@given(st.text(max_size=5), st.lists(st.one_of(st.integers(), st.binary(max_size=8)), max_size=3))
def test_a_stream_is_a_function_of_key_and_label(use: str, label: list[int | bytes]) -> None:
    drawn = KEY.stream(use, *label).words(4).tobytes()
    assert KEY.stream(use, *label).words(4).tobytes() == drawn
    assert KEY.stream(use, *label, 0).words(4).tobytes() != drawn
    assert KEY.stream(use + "x", *label).words(4).tobytes() != drawn
    assert PrivateKey.draw(SeededEntropy(6)).stream(use, *label).words(4).tobytes() != drawn


def test_odd_counts_and_none_at_all_can_be_drawn() -> None:
    assert KEY.stream("test").normal(3).shape == (3,)
    assert KEY.stream("test").normal(0).shape == (0,)


def test_a_key_never_shows_and_has_its_length() -> None:
    secret = KEY.secret.reveal()
    assert secret.hex() not in repr(KEY)
    assert repr(secret) not in repr(KEY)
    with pytest.raises(LocalProtocolError, match=f"{KEY_BYTES} bytes"):
        PrivateKey(Secret(b"short"))
    with pytest.raises(LocalProtocolError, match="randomness source"):
        PrivateKey.draw(lambda n: b"")
