"""Derived keys: equal only for equal purpose and context, and only from full-strength secrets."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.crypto.kdf import KEY_BYTES, KeyContext, Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError

SECRET = Secret(bytes(range(32)))
CONTEXT = KeyContext(session=bytes(32), round=1, attempt=1, sender="alice", receiver="bob", term="gradient")

counters = st.integers(0, 2**64 - 1)
short_names = st.text(alphabet="abé/", max_size=4)
contexts = st.builds(
    KeyContext,
    session=st.sampled_from([bytes(32), bytes([1]) * 32]),
    round=st.integers(0, 2) | counters,
    attempt=st.integers(0, 2) | counters,
    sender=short_names,
    receiver=short_names,
    term=short_names,
    group=st.integers(0, 2) | counters,
    model_hash=st.sampled_from([b"", bytes(32)]),
)


@given(contexts, contexts)
def test_context_encoding_is_injective(left: KeyContext, right: KeyContext) -> None:
    """Two contexts have the same bytes exactly when all their fields are equal."""
    assert (left.encode() == right.encode()) == (left == right)


def test_name_boundaries_are_part_of_the_encoding() -> None:
    """Moving a letter from one name to its neighbour changes the bytes."""
    splits = [dataclasses.replace(CONTEXT, sender="abc"[:i], receiver="abc"[i:], term="") for i in range(4)]
    assert len({context.encode() for context in splits}) == len(splits)


CHANGES = {
    "session": bytes([1]) * 32,
    "round": 2,
    "attempt": 2,
    "sender": "carol",
    "receiver": "carol",
    "term": "sigma",
    "group": 1,
    "model_hash": bytes(32),
}


def test_every_field_changes_the_key() -> None:
    """Purpose and each field of the context matter: changing any one of them gives another key."""
    assert set(CHANGES) == {field.name for field in dataclasses.fields(KeyContext)}
    variants = [CONTEXT] + [
        dataclasses.replace(CONTEXT, **{name: value})  # type: ignore[arg-type]  # one table, many types
        for name, value in CHANGES.items()
    ]
    keys = {
        derive_key(SECRET, purpose, context).reveal()
        for purpose, context in itertools.product(Purpose, variants)
    }
    assert len(keys) == len(Purpose) * len(variants)
    assert {len(key) for key in keys} == {KEY_BYTES}


def test_key_depends_on_the_secret_and_on_nothing_hidden() -> None:
    """The same arguments give the same key, another secret another one."""
    key = derive_key(SECRET, Purpose.BIAS, CONTEXT)
    assert derive_key(Secret(bytes(range(32))), Purpose.BIAS, dataclasses.replace(CONTEXT)) == key
    assert derive_key(Secret(bytes(32)), Purpose.BIAS, CONTEXT) != key


@given(st.binary(max_size=80).filter(lambda secret: len(secret) != KEY_BYTES))
def test_secret_of_another_length_is_refused(secret: bytes) -> None:
    """Only 32-byte secrets are stretched into keys."""
    with pytest.raises(LocalProtocolError, match=f"not {len(secret)} bytes"):
        derive_key(Secret(secret), Purpose.SHARE, CONTEXT)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("session", b"short", "session id"),
        ("model_hash", b"short", "model hash"),
        ("round", -1, "64-bit"),
        ("attempt", 2**64, "64-bit"),
        ("group", -1, "64-bit"),
    ],
)
def test_context_out_of_range_cannot_be_built(name: str, value: object, complaint: str) -> None:
    """A context with a field out of range is refused where it is made."""
    with pytest.raises(LocalProtocolError, match=complaint):
        dataclasses.replace(CONTEXT, **{name: value})  # type: ignore[arg-type]  # one table, many types


@pytest.mark.parametrize("name", ["a" * 256, "\ud800"])
def test_name_without_a_short_encoding_is_refused(name: str) -> None:
    """Names must have a UTF-8 form of at most 255 bytes."""
    with pytest.raises(LocalProtocolError):
        derive_key(SECRET, Purpose.SEAL, dataclasses.replace(CONTEXT, term=name))
