"""Vectors of Z_2^b: what they are, what is refused, and that arithmetic wraps exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.numbers.ring import Ring, add_into

rings = st.sampled_from([Ring(32), Ring(64)])


@pytest.mark.parametrize("bits", [0, 8, 31, 33, 63, 65, 128, -64])
def test_only_words_of_32_and_64_bits_exist(bits: int) -> None:
    with refusal(ParameterError, 32, 64, bits):
        Ring(bits)


@given(rings, st.data())
def test_addition_is_exact_modulo_two_to_the_bits(ring: Ring, data: st.DataObject) -> None:
    words = st.lists(st.integers(0, 2**ring.bits - 1), min_size=5, max_size=5)
    left, right = data.draw(words), data.draw(words)
    total = np.array(left, dtype=ring.dtype)
    add_into(total, np.array(right, dtype=ring.dtype))
    assert total.tolist() == [(a + b) % 2**ring.bits for a, b in zip(left, right, strict=True)]


@given(rings, st.data())
def test_signed_reads_the_same_words_as_two_s_complement(ring: Ring, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-ring.signed_limit, ring.signed_limit - 1), max_size=20))
    words = np.array([value % 2**ring.bits for value in values], dtype=ring.dtype)
    assert ring.signed(words).tolist() == values
    assert np.shares_memory(ring.signed(words), words) or not values


@pytest.mark.parametrize("bits", [32, 64])
def test_words_are_little_endian_in_memory(bits: int) -> None:
    ring = Ring(bits)
    words = ring.zeros(2)
    words[0] = 0x01020304
    assert words.tobytes() == bytes([4, 3, 2, 1]) + bytes(2 * ring.word_bytes - 4)


@pytest.mark.parametrize(
    ("vector", "named"),
    [
        (np.zeros(4, np.uint32), "uint32"),
        (np.zeros(4, np.int64), "int64"),
        (np.zeros(4, np.float64), "float64"),
        (np.zeros(4, ">u8"), ">u8"),
        (np.zeros((2, 2), np.uint64), "[2, 2]"),
        (np.zeros(3, np.uint64), "got 3"),
        (np.zeros(5, np.uint64), "got 5"),
        ([0, 0, 0, 0], "list"),
        (None, "NoneType"),
    ],
)
def test_a_vector_of_another_type_shape_or_length_is_refused_by_name(vector: object, named: str) -> None:
    with pytest.raises(Rejection) as refused:
        Ring(64).require(vector, 4)
    assert refused.value.reason is AbortReason.BAD_VECTOR
    assert named in refused.value.detail


def test_a_vector_of_the_ring_is_passed_through_without_a_copy() -> None:
    vector = Ring(32).zeros(4)
    assert Ring(32).require(vector, 4) is vector


@pytest.mark.parametrize(
    "make", [bytearray, lambda n: memoryview(bytearray(n)), lambda n: np.zeros(n, np.uint8)]
)
def test_any_writable_contiguous_buffer_is_seen_as_words_without_a_copy(make: object) -> None:
    target = make(16)  # type: ignore[operator]
    Ring(64).words_of(target)[1] = 255
    assert bytes(target) == bytes(8) + b"\xff" + bytes(7)


@pytest.mark.parametrize(
    "target",
    [bytes(16), memoryview(bytes(16)), np.zeros(4, np.uint64)[::2], np.frombuffer(bytes(16), np.uint64)],
)
def test_a_read_only_or_scattered_buffer_is_refused(target: object) -> None:
    with refusal(LocalProtocolError, "writable", "contiguous"):
        Ring(64).words_of(target)


def test_a_buffer_that_is_not_whole_words_is_refused() -> None:
    with refusal(LocalProtocolError, 15, "64-bit"):
        Ring(64).words_of(bytearray(15))


def test_something_that_is_no_buffer_is_refused_by_name() -> None:
    with refusal(LocalProtocolError, "list", "buffer", "bytearray", "memoryview"):
        Ring(64).words_of([1, 2, 3])
