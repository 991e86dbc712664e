"""Secrets: opened only on purpose, compared by value, neither hashed nor pickled."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.secret import Secret, equal_in_constant_time
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.randomness import require_random


@given(st.binary())
def test_reveal_returns_what_was_hidden(value: bytes) -> None:
    assert Secret(value).reveal() == value
    assert len(Secret(value)) == len(value)


@given(st.binary(), st.binary())
def test_secrets_are_equal_exactly_when_their_bytes_are(left: bytes, right: bytes) -> None:
    assert (Secret(left) == Secret(right)) == (left == right)
    assert equal_in_constant_time(left, right) == (left == right)


def test_secret_never_equals_bare_bytes() -> None:
    """Comparing with bytes would invite an early-exit comparison; it is simply unequal."""
    assert Secret(b"key") != b"key"


def test_secret_is_neither_hashed_nor_pickled_nor_copied() -> None:
    secret = Secret(b"key")
    with pytest.raises(TypeError, match="hashable"):
        hash(secret)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="pickled"):
        copy.deepcopy(secret)


@pytest.mark.parametrize("value", ["text", bytearray(b"key"), None])
def test_only_bytes_become_secrets(value: object) -> None:
    """A mutable buffer could change behind the secret's back."""
    with pytest.raises(TypeError, match=type(value).__name__):
        Secret(value)  # type: ignore[arg-type]  # the wrong type is the test


@given(st.integers(0, 64), st.integers(0, 64))
def test_randomness_source_must_return_what_was_asked_for(asked: int, returned: int) -> None:
    if asked == returned:
        assert require_random(lambda _: bytes(returned), asked) == bytes(asked)
    else:
        with refusal(LocalProtocolError, returned, asked):
            require_random(lambda _: bytes(returned), asked)


def test_randomness_source_must_return_bytes() -> None:
    with pytest.raises(LocalProtocolError, match="str"):
        require_random(lambda n: "x" * n, 4)  # type: ignore[arg-type,return-value]  # the wrong type is the test
