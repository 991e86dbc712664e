"""Vectors in Z_2^b, b = 32 or 64: numpy words that wrap around.

Floats neither hide nor cancel: there is no uniform distribution over the reals, and (x + mask) - mask loses
bits. In Z_2^b both are exact: x + u is uniform whenever u is, and subtraction undoes addition bit for bit.
Words are little-endian in memory and on the wire, whatever the machine.

Implements specs/numbers.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection

RingVector: TypeAlias = NDArray[np.unsignedinteger[Any]]
SignedVector: TypeAlias = NDArray[np.signedinteger[Any]]

RING_BITS = (32, 64)


@dataclass(frozen=True)
class Ring:
    """The whole numbers from 0 below 2 to the power of `bits`, which wrap around."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in RING_BITS:
            raise ParameterError([f"bits must be 32 or 64, not {self.bits}"])

    @property
    def word_bytes(self) -> int:
        """How many bytes a word has."""
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The type of words in an array."""
        return np.dtype(f"<u{self.word_bytes}")

    @property
    def signed_dtype(self) -> np.dtype[np.signedinteger[Any]]:
        """The type that reads the same words as positive and negative numbers."""
        return np.dtype(f"<i{self.word_bytes}")

    @property
    def signed_limit(self) -> int:
        """The first integer too large for the signed reading of a word."""
        return 1 << (self.bits - 1)

    def zeros(self, length: int) -> RingVector:
        """So many words, all zero."""
        return np.zeros(length, dtype=self.dtype)

    def signed(self, vector: RingVector) -> SignedVector:
        """The same words read as two's complement integers; no copy."""
        return vector.view(self.signed_dtype)

    def require(self, vector: object, length: int) -> RingVector:
        """Refuse what a remote party must not send: not a vector of this ring, or of another length."""
        if not isinstance(vector, np.ndarray) or vector.dtype != self.dtype or vector.ndim != 1:
            found = (
                f"{vector.dtype}{list(vector.shape)}"
                if isinstance(vector, np.ndarray)
                else type(vector).__name__
            )
            raise Rejection(
                AbortReason.BAD_VECTOR, f"expected {length} words of {self.bits} bits, got {found}"
            )
        if len(vector) != length:
            raise Rejection(AbortReason.BAD_VECTOR, f"expected {length} words, got {len(vector)}")
        return vector

    def words_of(self, target: Any) -> RingVector:
        """A vector over any writable contiguous buffer (numpy array, bytearray, memoryview); no copy."""
        try:
            view = memoryview(target)
        except TypeError:
            raise LocalProtocolError(
                f"{type(target).__name__} has no buffer: masks need an array, a bytearray or a memoryview"
            ) from None
        if view.readonly or not view.c_contiguous:
            raise LocalProtocolError("masks need a writable, contiguous buffer: pass a copy of this one")
        if view.nbytes % self.word_bytes:
            raise LocalProtocolError(f"{view.nbytes} bytes are not a whole number of {self.bits}-bit words")
        if not view.nbytes:
            return self.zeros(0)
        return np.frombuffer(view.cast("B"), dtype=self.dtype)


def add_into(total: RingVector, vector: RingVector) -> None:
    np.add(total, vector, out=total)
