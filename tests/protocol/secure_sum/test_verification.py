"""Verified sums: every honest sum passes, and nothing else does."""

from __future__ import annotations

import functools
import itertools
import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.linear_tag import attempt_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.fixedpoint import FixedPoint, plan
from veilsum.protocol.numbers.ring import Ring, RingVector, add_into
from veilsum.protocol.secure_sum.verification import TAG_WORDS, AttemptTags, attempt_tags
from veilsum.protocol.wire.messages import Stamp

GROUP_KEY = Secret(bytes(range(32)))
STAMP = Stamp(session=bytes([7]) * 32, round=3, attempt=1, model_hash=bytes([8]) * 32)
NAMES = tuple(PartyId(name) for name in ("dora", "alice", "eve", "bob", "carol"))
BITS = (32, 64)
RATES = (-1.0, 1.0, 0.0, 0.3, -0.7)


@functools.cache
def encoding_of(bits: int) -> FixedPoint:
    return plan(len(NAMES), 1000, 8.0, bits).encoding


def tags_of(bits: int, stamp: Stamp = STAMP) -> AttemptTags:
    return attempt_tags(encoding_of(bits), GROUP_KEY, stamp, NAMES)


def uploads(bits: int, dimension: int, stamp: Stamp = STAMP) -> dict[PartyId, tuple[RingVector, RingVector]]:
    """Of each party its encoded update, extremes among them, and the limbs of its tag."""
    rng = np.random.default_rng(dimension)
    made = {}
    for rate, name in zip(RATES, NAMES, strict=True):
        values = 8.0 * rate * rng.choice([1.0, 1.0, 0.5], dimension)
        vector = encoding_of(bits).encode(values, 1000 if abs(rate) == 1 else 17)
        made[name] = vector, tags_of(bits, stamp).limbs_for(name, vector)
    return made


def added(pieces: Iterable[tuple[RingVector, RingVector]]) -> tuple[RingVector, RingVector]:
    pairs = [(vector.copy(), limbs.copy()) for vector, limbs in pieces]
    total, limbs = pairs[0]
    for vector, more in pairs[1:]:
        add_into(total, vector)
        add_into(limbs, more)
    return total, limbs


def refuses(tags: AttemptTags, total: RingVector, limbs: RingVector, survivors: Iterable[PartyId]) -> bool:
    try:
        tags.require_sum(total, limbs, list(survivors))
    except Rejection as error:
        assert error.reason is AbortReason.SUM_FALSIFIED
        return True
    return False


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dimension", range(1, 12))
def test_every_honest_sum_passes(bits: int, dimension: int) -> None:
    """Any survivors out of the session, in any order, at all lengths around the borders of blocks."""
    sent = uploads(bits, dimension)
    for count in range(1, len(NAMES) + 1):
        for survivors in itertools.combinations(NAMES, count):
            total, limbs = added(sent[name] for name in survivors)
            before = total.copy(), limbs.copy()
            tags_of(bits).require_sum(total, limbs, survivors)
            tags_of(bits).require_sum(total, limbs, survivors[::-1])
            assert (total == before[0]).all() and (limbs == before[1]).all()


@pytest.mark.parametrize("bits", BITS)
def test_a_kept_attempt_key_suffices_for_a_check(bits: int) -> None:
    """A member that lost the group key checks a sum that others pass on, with what it has written down."""
    total, limbs = added(uploads(bits, 5).values())
    key = tags_of(bits).key
    assert key == attempt_key(GROUP_KEY, STAMP.key_context(""))
    AttemptTags(encoding_of(bits), Secret(key.reveal()), set(NAMES)).require_sum(total, limbs, NAMES)


@pytest.mark.parametrize("bits", BITS)
def test_any_flipped_bit_of_the_sum_is_refused(bits: int) -> None:
    total, limbs = added(uploads(bits, 4).values())
    for word, bit in itertools.product(range(len(total)), range(bits)):
        lie = total.copy()
        lie[word] ^= lie.dtype.type(1 << bit)
        assert refuses(tags_of(bits), lie, limbs, NAMES)


@pytest.mark.parametrize("bits", BITS)
def test_any_flipped_bit_of_the_sum_of_tags_is_refused_below_128(bits: int) -> None:
    """What a limb has beyond the 128 bits of a tag says nothing, and may be anything."""
    total, limbs = added(uploads(bits, 4).values())
    for word, bit in itertools.product(range(TAG_WORDS), range(bits)):
        lie = limbs.copy()
        lie[word] ^= lie.dtype.type(1 << bit)
        assert refuses(tags_of(bits), total, lie, NAMES) == (16 * word + bit < 128)


@pytest.mark.parametrize("bits", BITS)
def test_exchanged_longer_or_shorter_words_are_refused(bits: int) -> None:
    total, limbs = added(uploads(bits, 9).values())
    for i, j in itertools.combinations(range(len(total)), 2):
        lie = total.copy()
        lie[[i, j]] = lie[[j, i]]
        assert refuses(tags_of(bits), lie, limbs, NAMES) == (total[i] != total[j])
    assert refuses(tags_of(bits), total[:-1], limbs, NAMES)
    assert refuses(tags_of(bits), np.append(total, total.dtype.type(0)), limbs, NAMES)


@pytest.mark.parametrize("bits", BITS)
def test_a_sum_is_that_of_its_own_survivors_only(bits: int) -> None:
    """Fewer, more or other parties than the list says: refused, for every pair of lists."""
    sent = uploads(bits, 6)
    lists = [c for count in range(1, len(NAMES) + 1) for c in itertools.combinations(NAMES, count)]
    for summed, said in itertools.product(lists, lists):
        total, limbs = added(sent[name] for name in summed)
        assert refuses(tags_of(bits), total, limbs, said) == (summed != said)


@pytest.mark.parametrize("bits", BITS)
def test_an_upload_twice_or_instead_of_another_is_refused(bits: int) -> None:
    sent = uploads(bits, 6)
    alice, bob, carol = (sent[PartyId(name)] for name in ("alice", "bob", "carol"))
    for chosen in ([alice, bob, carol, carol], [alice, alice, bob], [alice, bob]):
        assert refuses(tags_of(bits), *added(chosen), map(PartyId, ("alice", "bob", "carol")))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "other",
    [
        Stamp(bytes([1]) * 32, 3, 1, bytes([8]) * 32),
        Stamp(bytes([7]) * 32, 4, 1, bytes([8]) * 32),
        Stamp(bytes([7]) * 32, 3, 2, bytes([8]) * 32),
        Stamp(bytes([7]) * 32, 3, 1, bytes([9]) * 32),
    ],
    ids=["session", "round", "attempt", "model"],
)
def test_a_sum_of_another_attempt_is_refused_whole_or_in_part(bits: int, other: Stamp) -> None:
    """Neither the sum of another session, round, attempt or model passes, nor one with an upload from there."""
    here, there = uploads(bits, 5), uploads(bits, 5, other)
    assert refuses(tags_of(bits), *added(there.values()), NAMES)
    assert refuses(tags_of(bits), *added({**here, NAMES[0]: there[NAMES[0]]}.values()), NAMES)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BITS), st.data())
def test_a_word_beyond_the_bound_spoils_its_own_sum_only(bits: int, data: st.DataObject) -> None:
    """A party that tags what no encoder makes is refused with its sum when a word of it wraps, and only then."""
    sent, encoding = uploads(bits, 4), encoding_of(bits)
    word = data.draw(st.integers(0, 2**bits - 1))
    vector = sent[NAMES[0]][0].copy()
    vector[0] = word
    sent[NAMES[0]] = vector, tags_of(bits).limbs_for(NAMES[0], vector)
    lifted = sum((int(v[0]) + encoding.largest_word) % 2**bits for v, _ in sent.values())
    assert refuses(tags_of(bits), *added(sent.values()), NAMES) == (lifted >= 2**bits)
    assert not refuses(tags_of(bits), *added(sent[name] for name in NAMES[1:]), NAMES[1:])


@given(
    st.sampled_from(BITS),
    st.integers(1, 2000),
    st.integers(1, 10**5),
    st.floats(2.0**-10, 2.0**12),
)
def test_lifted_words_never_wrap_in_an_encoding_that_the_planner_makes(
    bits: int, parties: int, max_weight: int, clip: float
) -> None:
    """Twice the largest word, times all parties, is below 2^b; and no encoder gives a larger word."""
    try:
        encoding = plan(parties, max_weight, clip, bits).encoding
    except ParameterError:
        return
    assert 2 * parties * encoding.largest_word < 2**bits
    for kind in (np.float32, np.float64):
        words = encoding.ring.signed(encoding.encode(np.array([clip, -clip], dtype=kind), max_weight))
        assert max(abs(int(word)) for word in words) <= encoding.largest_word


def test_one_key_covers_one_vector() -> None:
    """A second vector under one key would give the server what forges every sum: refused, whatever the vector."""
    tags, vector = tags_of(32), encoding_of(32).encode(np.zeros(3), 1)
    tags.limbs_for(NAMES[0], vector)
    with refusal(LocalProtocolError, NAMES[0]):
        tags.limbs_for(NAMES[0], vector)


@pytest.mark.parametrize("survivors", [[], ["mallory", "alice"], ["alice", "alice"]])
def test_a_list_with_nobody_strangers_or_doubles_is_refused(survivors: list[str]) -> None:
    total, limbs = added(uploads(32, 3).values())
    strangers = [name for name in survivors if name not in NAMES]
    with refusal(Rejection, *strangers, reason=AbortReason.SURVIVOR_LIST):
        tags_of(32).require_sum(total, limbs, [PartyId(name) for name in survivors])


@pytest.mark.parametrize("limbs", [Ring(32).zeros(7), Ring(64).zeros(8)])
def test_limbs_of_another_form_are_refused(limbs: RingVector) -> None:
    total, _ = added(uploads(32, 3).values())
    with refusal(Rejection, reason=AbortReason.BAD_VECTOR):
        tags_of(32).require_sum(total, limbs, NAMES)


def test_sessions_beyond_the_budget_or_the_limbs_are_refused() -> None:
    many = [PartyId(f"p{i}") for i in range(65_538)]
    wide, narrow = (FixedPoint(Ring(bits), 0, 1.0, 2**20, 1) for bits in (64, 32))
    AttemptTags(wide, GROUP_KEY, many)
    AttemptTags(narrow, GROUP_KEY, many[1:])
    with refusal(ParameterError, 65_537):
        AttemptTags(narrow, GROUP_KEY, many)
    with refusal(LocalProtocolError, 5, 6):
        AttemptTags(encoding_of(32), GROUP_KEY, many[:6])


def test_no_second_vector_is_made() -> None:
    """Tagging and checking 32 MiB takes a buffer of one block beside the vector."""
    encoding = encoding_of(64)
    vector = encoding.ring.zeros(1 << 22)
    tags = tags_of(64)
    tracemalloc.start()
    try:
        limbs = tags.limbs_for(NAMES[0], vector)
        tags.require_sum(vector, limbs, NAMES[:1])
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()
