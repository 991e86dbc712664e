"""Splits: every sample goes to one party, nobody goes without, and the seed decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.splits import Split, divide, parse_split

splits = st.one_of(
    st.sampled_from(["iid", "by-order"]),
    st.floats(0.05, 100).map(lambda a: f"dirichlet:{a}"),
    st.floats(0, 1).map(lambda p: f"one-class:{p}"),
)


@given(
    splits, st.lists(st.integers(0, 4), min_size=1, max_size=120), st.integers(1, 8), st.integers(0, 2**64)
)
def test_every_sample_goes_to_exactly_one_party_and_no_party_is_empty(
    text: str, labels: list[int], parties: int, seed: int
) -> None:
    try:
        parts = divide(parse_split(text), len(labels), np.array(labels), parties, seed)
    except LocalProtocolError as error:
        assume("leaves party" not in str(error) and "cannot give each" not in str(error))
        raise
    assert len(parts) == parties
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


@given(splits, st.integers(0, 2**32))
def test_a_split_is_a_function_of_the_seed(text: str, seed: int) -> None:
    labels = np.arange(400) % 4
    split = parse_split(text)

    def attempt() -> list[list[int]] | str:
        try:
            return [part.tolist() for part in divide(split, 400, labels, 3, seed)]
        except LocalProtocolError as error:
            return str(error)

    assert attempt() == attempt()


@pytest.mark.parametrize("text", ["iid", "dirichlet:1", "one-class:0.5"])
def test_another_seed_gives_another_split(text: str) -> None:
    labels = np.arange(400) % 4
    first, second = (divide(parse_split(text), 400, labels, 4, seed) for seed in (1, 2))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@given(st.integers(1, 20), st.integers(0, 200), st.sampled_from(["iid", "by-order"]))
def test_even_splits_differ_by_at_most_one_sample(parties: int, extra: int, text: str) -> None:
    sizes = [len(part) for part in divide(parse_split(text), parties + extra, None, parties, seed=3)]
    assert max(sizes) - min(sizes) <= 1


def test_by_order_gives_consecutive_parts_in_file_order() -> None:
    parts = divide(Split("by-order"), 10, None, 3, seed=0)
    assert np.concatenate(parts).tolist() == list(range(10))


def test_one_class_of_one_gives_each_party_its_own_class_and_nothing_else() -> None:
    labels = np.arange(40) % 4
    for party, part in enumerate(divide(Split("one-class", 1.0), 40, labels, 4, seed=5)):
        assert labels[part].tolist() == [party] * 10


def test_one_class_keeps_the_asked_fraction_and_deals_out_the_rest_evenly() -> None:
    labels = np.arange(4000) % 4
    parts = divide(Split("one-class", 0.6), 4000, labels, 4, seed=5)
    for party, part in enumerate(parts):
        counts = np.bincount(labels[part], minlength=4)
        assert len(part) == 1000
        assert 600 < counts[party] < 800
        assert all(50 < counts[other] < 150 for other in range(4) if other != party)


def test_parties_beyond_the_number_of_classes_share_a_class() -> None:
    labels = np.arange(40) % 2
    parts = divide(Split("one-class", 1.0), 40, labels, 4, seed=5)
    assert [set(labels[part].tolist()) for part in parts] == [{0}, {1}, {0}, {1}]


def test_a_small_dirichlet_parameter_is_further_from_even_than_a_large_one() -> None:
    labels = np.arange(5000) % 10

    def unevenness(amount: float) -> float:
        parts = divide(Split("dirichlet", amount), 5000, labels, 5, seed=1)
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        return float(counts.std())

    assert unevenness(0.3) > 3 * unevenness(100)


def test_own_leaves_the_data_of_a_party_whole() -> None:
    assert [part.tolist() for part in divide(Split("own"), 3, None, 2, seed=0)] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    "text",
    [
        *("", "IID", "iid:2", "by-order:1", "own:1", "sorted"),
        *("dirichlet", "dirichlet:0", "dirichlet:-1", "dirichlet:nan", "dirichlet:inf", "dirichlet:x"),
        *("one-class", "one-class:1.5", "one-class:-0.1"),
    ],
)
def test_an_unknown_split_is_refused_with_the_allowed_forms(text: str) -> None:
    with refusal(LocalProtocolError, "iid", "dirichlet:A", "one-class:P"):
        parse_split(text)


@pytest.mark.parametrize("text", ["iid", "dirichlet:0.5", "one-class:0.25", "by-order", "own"])
def test_a_split_prints_as_it_was_written(text: str) -> None:
    assert str(parse_split(text)) == text


def test_a_party_without_samples_is_named() -> None:
    with refusal(LocalProtocolError, "party", 4, "seed"):
        divide(Split("one-class", 1.0), 5, np.array([0, 0, 0, 0, 1]), 4, seed=0)


def test_impossible_splits_are_refused() -> None:
    with refusal(LocalProtocolError, 2, "samples", 3, "parties"):
        divide(Split("iid"), 2, None, 3, seed=0)
    with refusal(LocalProtocolError, "split", "one", "party", 0):
        divide(Split("iid"), 2, None, 0, seed=0)
    with pytest.raises(LocalProtocolError, match="needs class labels"):
        divide(Split("dirichlet", 1.0), 4, None, 2, seed=0)
    with refusal(LocalProtocolError, 4, "labels"):
        divide(Split("one-class", 1.0), 4, np.zeros(3, dtype=np.int64), 2, seed=0)
