"""Fixed point: the error bound, the budget to the last unit, and every refusal by name."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.support.refusals import mentions, refusal, require_mentions
from veilsum.protocol.errors import (
    AbortReason,
    EncodingError,
    LocalProtocolError,
    ParameterError,
    Rejection,
)
from veilsum.protocol.numbers.fixedpoint import FixedPoint, fits_budget, plan
from veilsum.protocol.numbers.ring import Ring, RingVector, add_into

ENCODING = plan(parties=10, max_weight=1000, clip=8.0, bits=64).encoding


def total_of(encoding: FixedPoint, uploads: list[RingVector]) -> RingVector:
    total = encoding.ring.zeros(len(uploads[0]))
    for upload in uploads:
        add_into(total, upload)
    return total


@st.composite
def federations(draw: st.DrawFn) -> tuple[FixedPoint, list[tuple[np.ndarray, int]]]:
    """An encoding the planner accepts, and parties that use it up to its bounds."""
    bits = draw(st.sampled_from([32, 64]))
    count = draw(st.integers(1, 12))
    max_weight = draw(st.integers(1, 5000))
    clip = draw(st.floats(2**-10, 2**7) | st.sampled_from([1.0, 1.1, 8.0]))
    try:
        encoding = plan(count, max_weight, clip, bits).encoding
    except ParameterError:
        assume(False)
    width = draw(st.sampled_from([32, 64]))
    largest = float(np.float32(clip)) if width == 32 else clip
    value = st.floats(-largest, largest, width=width) | st.sampled_from([largest, -largest])
    dimension = draw(st.integers(0, 6))
    values = st.lists(value, min_size=dimension, max_size=dimension)
    held = [
        (np.array(draw(values), dtype=f"f{width // 8}"), draw(st.integers(1, max_weight)))
        for _ in range(count)
    ]
    return encoding, held


@given(federations())
def test_the_decoded_mean_is_within_the_stated_error_of_the_exact_one(
    federation: tuple[FixedPoint, list[tuple[np.ndarray, int]]],
) -> None:
    encoding, held = federation
    total = total_of(encoding, [encoding.encode(values, samples) for values, samples in held])
    mean, samples_sum = encoding.decode_mean(total, len(held))
    weight = sum(samples for _, samples in held)
    bound = encoding.worst_case_error(weight / len(held), len(held))
    for i, decoded in enumerate(mean):
        exact = sum(Fraction(float(values[i])) * samples for values, samples in held) / weight
        assert abs(Fraction(float(decoded)) - exact) <= Fraction(bound)
    assert abs(samples_sum - weight) <= len(held) * encoding.max_weight / encoding.scale


@given(federations())
def test_the_ring_sum_is_the_integer_sum_of_what_was_encoded(
    federation: tuple[FixedPoint, list[tuple[np.ndarray, int]]],
) -> None:
    encoding, held = federation
    uploads = [encoding.encode(values, samples) for values, samples in held]
    exact = [sum(column) for column in zip(*(encoding.ring.signed(u).tolist() for u in uploads), strict=True)]
    assert encoding.ring.signed(total_of(encoding, uploads)).tolist() == exact
    assert max(map(abs, exact)) < encoding.ring.signed_limit


def test_a_party_uploads_its_weighted_values_its_weight_and_a_one() -> None:
    encoding = FixedPoint(Ring(64), 4, clip=8.0, max_parties=10, max_weight=4)
    upload = encoding.encode(np.array([1.0, -0.5, 8.0], np.float32), samples=2)
    assert encoding.ring.signed(upload).tolist() == [8, -4, 64, 8, 1]
    assert encoding.vector_length(3) == 5


@pytest.mark.parametrize(("value", "word"), [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (-2.5, -2)])
def test_rounding_is_half_to_even(value: float, word: int) -> None:
    encoding = FixedPoint(Ring(32), 0, clip=8.0, max_parties=10, max_weight=1)
    assert encoding.ring.signed(encoding.encode(np.array([value]), 1))[0] == word


def test_the_mean_of_ten_normal_vectors_is_bit_identical_as_float32_to_the_float64_mean() -> None:
    draw = np.random.default_rng(1)
    vectors = [draw.standard_normal(100_000, dtype=np.float32) for _ in range(10)]
    mean, _ = ENCODING.decode_mean(total_of(ENCODING, [ENCODING.encode(v, 1000) for v in vectors]), 10)
    plain = np.mean([v.astype(np.float64) for v in vectors], axis=0)
    assert np.array_equal(mean.astype(np.float32), plain.astype(np.float32))


budgets = st.tuples(
    st.sampled_from([Ring(32), Ring(64)]),
    st.integers(1, 10_000),
    st.floats(2**-6, 2**12) | st.sampled_from([1.0, 8.0, 1.1, 0.1]),
)


@given(budgets)
@example((Ring(64), 100, 8.0))
@example((Ring(32), 1, 1.0))
def test_the_planned_bits_fit_and_one_bit_more_is_refused(budget: tuple[Ring, int, float]) -> None:
    ring, parties, clip = budget
    planned = plan(parties, 1, clip, ring.bits).planned_bits
    FixedPoint(ring, planned, clip, parties, 1)
    with pytest.raises(ParameterError, match="does not fit"):
        FixedPoint(ring, planned + 1, clip, parties, 1)


@given(
    st.sampled_from([Ring(32), Ring(64)]), st.integers(0, 28), st.sampled_from([0.25, 1.0, 1.1, 8.0, 100.0])
)
def test_the_last_party_that_fits_is_accepted_and_one_party_more_is_refused(
    ring: Ring, fractional_bits: int, clip: float
) -> None:
    unit = max(Fraction(clip), Fraction(float(np.float32(clip))), Fraction(1)) * 2**fractional_bits + 1
    most = -(-ring.signed_limit // unit) - 1
    assume(most >= 1)
    FixedPoint(ring, fractional_bits, clip, int(most), 1)
    with refusal(ParameterError, most + 1, "clip"):
        FixedPoint(ring, fractional_bits, clip, int(most) + 1, 1)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_fullest_budget_does_not_wrap(bits: int, sign: int) -> None:
    """Every party at the clip, at full weight, with as many parties as the budget allows."""
    ring, f = Ring(bits), bits - 8
    most = -(-ring.signed_limit // (2**f + 1)) - 1
    encoding = FixedPoint(ring, f, 1.0, most, 1)
    upload = encoding.encode(np.array([sign * 1.0]), 1)
    mean, _ = encoding.decode_mean(total_of(encoding, [upload] * most), most)
    assert mean.tolist() == [sign * 1.0]


def test_float32_values_clamped_to_a_clip_that_float32_rounds_up_are_accepted_within_budget() -> None:
    """float32(1.1) exceeds 1.1: it is accepted, and the budget counts with the larger of the two."""
    clamped = np.array([5.0, -5.0], np.float32).clip(-1.1, 1.1)
    assert float(clamped[0]) > 1.1
    plan(3, 10, 1.1, 32).encoding.encode(clamped, 10)
    between = Fraction(2**30) * Fraction(float(np.float32(1.1))) + 1
    most = int(-(-Ring(32).signed_limit // between) - 1)
    assert fits_budget(Ring(32), most, 1.1, 30)
    assert not fits_budget(Ring(32), most + 1, 1.1, 30)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("index", [0, 40_000, 99_999])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_value_that_is_not_finite_is_refused_by_its_coordinate(
    wrong: float, index: int, dtype: type
) -> None:
    values = np.zeros(100_000, dtype)
    values[index] = wrong
    before = values.copy()
    with refusal(EncodingError, index, wrong, "learning"):
        ENCODING.encode(values, 1)
    assert np.array_equal(values, before, equal_nan=True)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_clip_itself_is_accepted_and_the_next_float_is_refused(sign: int, dtype: type) -> None:
    edge = np.array([0, sign * 8.0], dtype)
    ENCODING.encode(edge, 1)
    edge[1] = np.nextafter(edge[1], dtype(sign * np.inf))
    with refusal(EncodingError, "coordinate", 1, "clip", 8):
        ENCODING.encode(edge, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3, np.float16), "got float16"),
        (np.zeros(3, np.int64), "got int64"),
        (np.zeros(3, np.complex128), "got complex128"),
        (np.zeros(3, ">f8"), "got >f8"),
        (np.zeros((3, 1), np.float32), "shape (3, 1)"),
        (np.float32(1), "array, got float32"),
        ([1.0, 2.0], "array, got list"),
        (None, "array, got NoneType"),
    ],
)
def test_a_wrong_type_or_shape_is_refused_by_name(values: object, message: str) -> None:
    with pytest.raises(EncodingError, match=re.escape(message)):
        ENCODING.encode(values, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [0, -1, 1001, 2**70])
def test_a_sample_count_outside_the_agreed_range_is_refused(samples: int) -> None:
    with refusal(EncodingError, 1, 1000, samples):
        ENCODING.encode(np.zeros(1), samples)


@pytest.mark.parametrize("samples", [1.0, True, None, "3", np.bool_(True)])
def test_a_sample_count_that_is_no_integer_is_refused(samples: object) -> None:
    with refusal(EncodingError, "sample", "integer", type(samples).__name__):
        ENCODING.encode(np.zeros(1), samples)  # type: ignore[arg-type]


def test_numpy_integers_count_samples_too() -> None:
    assert np.array_equal(ENCODING.encode(np.ones(1), np.int64(7)), ENCODING.encode(np.ones(1), 7))  # type: ignore[arg-type]


@pytest.mark.parametrize("claimed", [1, 3])
def test_a_sum_of_another_number_of_parties_fails_the_check_coordinate(claimed: int) -> None:
    total = total_of(ENCODING, [ENCODING.encode(np.ones(4), 5)] * 2)
    with refusal(Rejection, 2, claimed) as refused:
        ENCODING.decode_mean(total, claimed)
    assert refused.value.reason is AbortReason.CHECK_FAILED


@given(st.integers(1, 2**64 - 1))
def test_a_mask_that_did_not_cancel_fails_the_check_coordinate(left_over: int) -> None:
    total = total_of(ENCODING, [ENCODING.encode(np.ones(4), 5)] * 2)
    total += np.uint64(left_over)
    with pytest.raises(Rejection) as refused:
        ENCODING.decode_mean(total, 2)
    assert refused.value.reason is AbortReason.CHECK_FAILED


LEAST = 2 * round(2**40 / 1000)


@pytest.mark.parametrize("weight", [0, -1, LEAST - 1, 2 * 2**40 + 1, -(2**60)])
def test_weights_that_cannot_be_are_refused(weight: int) -> None:
    total = total_of(ENCODING, [ENCODING.encode(np.zeros(4), 5)] * 2)
    ENCODING.ring.signed(total)[-2] = weight
    with refusal(Rejection, "weights", 2, 2000, reason=AbortReason.CHECK_FAILED):
        ENCODING.decode_mean(total, 2)


@pytest.mark.parametrize("samples", [1, 1000])
def test_the_least_and_the_largest_weight_are_accepted(samples: int) -> None:
    total = total_of(ENCODING, [ENCODING.encode(np.zeros(4), samples)] * 2)
    assert ENCODING.decode_mean(total, 2)[1] == pytest.approx(2 * samples)


@given(
    st.sampled_from([32, 64]),
    st.lists(st.tuples(st.integers(1, 1000), st.sampled_from([-1, 1])), min_size=1, max_size=6),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_mean_at_the_clip_is_accepted_and_one_beyond_by_more_than_rounding_is_not(
    bits: int, held: list[tuple[int, int]], kind: type
) -> None:
    """Whatever the weights: no honest sum is refused, and a word that moves the mean by a hundredth is."""
    encoding = plan(6, 1000, 1.1, bits).encoding
    uploads = [encoding.encode(np.array([1.1, -1.1, sign * 1.1], dtype=kind), n) for n, sign in held]
    total = total_of(encoding, uploads)
    encoding.decode_mean(total, len(held))
    rounding = encoding.worst_case_error(sum(n for n, _ in held) / len(held), len(held))
    weight = int(encoding.ring.signed(total)[-2])
    for place, sign in ((0, 1), (1, -1)):
        lie = total.copy()
        encoding.ring.signed(lie)[place] += sign * int(weight * (0.01 + 2 * rounding) + 1)
        before = lie.copy()
        with refusal(Rejection, place, "clip", 1.1, reason=AbortReason.CHECK_FAILED):
            encoding.decode_mean(lie, len(held))
        assert np.array_equal(lie, before)


@pytest.mark.parametrize("parties", [0, -1, 11])
def test_a_sum_of_more_parties_than_the_budget_covers_is_not_decoded(parties: int) -> None:
    with refusal(LocalProtocolError, 1, 10, parties):
        ENCODING.decode_mean(ENCODING.ring.zeros(3), parties)


def test_all_bad_parameters_are_reported_together() -> None:
    with pytest.raises(ParameterError) as refused:
        plan(parties=0, max_weight=0, clip=float("nan"), bits=33)
    assert len(refused.value.problems) == 4
    with pytest.raises(ParameterError) as refused:
        FixedPoint(Ring(64), -1, clip=-1.0, max_parties=0, max_weight=1)
    assert len(refused.value.problems) == 3


def test_too_few_fractional_bits_for_the_weight_of_one_sample_are_refused() -> None:
    FixedPoint(Ring(64), 10, 8.0, 10, 1024)
    with refusal(ParameterError, 11, "weight"):
        FixedPoint(Ring(64), 10, 8.0, 10, 1025)


def test_the_plan_of_the_handbook_example() -> None:
    found = plan(parties=100, max_weight=1000, clip=8, bits=64)
    assert (found.planned_bits, found.encoding.fractional_bits) == (53, 40)
    assert 13.3 < found.headroom_bits < 13.4


@given(
    st.integers(1, 2**64),
    st.integers(1, 2**50),
    st.floats(1e-6, 1e300),
    st.sampled_from([32, 64]),
)
def test_following_the_planner_s_advice_ends_in_a_plan(
    parties: int, weight: int, clip: float, bits: int
) -> None:
    """An impossible request says what to change, and doing so, a few times at most, is enough."""
    for _ in range(4):
        try:
            plan(parties, weight, clip, bits)
        except ParameterError as refused:
            advice = str(refused).rpartition("; ")[2]
        else:
            return
        figure = re.search(r"(\d+)\D*$", advice)
        if mentions(advice, "bits"):
            bits = 64
        elif figure and mentions(advice, "clip"):
            clip = float(figure[1])
        elif figure and mentions(advice, "weight"):
            weight = int(figure[1])
        else:
            require_mentions(advice, "parties", "weight")
            parties, weight = max(1, parties // 2**40), max(1, weight // 2**25)
    plan(parties, weight, clip, bits)
