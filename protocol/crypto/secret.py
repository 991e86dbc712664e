"""Bytes that must never be printed.

A `Secret` shows its length and nothing else in repr, str and formatting, compares in constant time, refuses
to be pickled, and is opened only by the explicit `reveal()`, which is easy to grep for in review.

Implements specs/keys.md, section 10.
"""

from __future__ import annotations

import hmac
from typing import NoReturn


def equal_in_constant_time(left: bytes, right: bytes) -> bool:
    return hmac.compare_digest(left, right)


class Secret:
    """Bytes that are never printed, logged, compared in the open or pickled; `reveal` alone opens them."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        if not isinstance(value, bytes):
            raise TypeError(f"a secret is bytes, not {type(value).__name__}")
        self._value = value

    def reveal(self) -> bytes:
        """The bytes themselves, for the library that computes with them."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and equal_in_constant_time(self._value, other._value)

    def __hash__(self) -> NoReturn:
        raise TypeError("a secret is not hashable: a dictionary lookup does not run in constant time")

    def __repr__(self) -> str:
        return f"<secret, {len(self._value)} bytes>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
