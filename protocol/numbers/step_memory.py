"""What a step remembers from one round to the next: a count of steps and named vectors of float64.

The memory is a value. It goes into a step beside the model and another one comes out, so that an attempt that is
repeated starts from the same memory, and a checkpoint can keep it. Before the first step it is empty.

Its bytes are canonical: one memory has one byte form, whatever machine writes it. `parts` gives them without joining
them, so that a hash covers a large memory without a copy of it.

Implements specs/learning.md, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import LocalProtocolError

Wide: TypeAlias = NDArray[np.float64]

MOST_STEPS = 2**64 - 1
MEMORY_WORD_BYTES = 8
_COUNT_BYTES, _SIZE_BYTES, _NAME_BYTES = 8, 8, 1


@dataclass(frozen=True, eq=False)
class StepMemory:
    """`count` steps were taken, and `vectors` is what they left; nobody writes into it."""

    count: int = 0
    vectors: Mapping[str, Wide] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", MappingProxyType(dict(self.vectors)))
        if not 0 <= self.count <= MOST_STEPS:
            raise LocalProtocolError(f"a memory counts from 0 to 2^64 - 1 steps, not {self.count}")

    def parts(self) -> Iterator[bytes | memoryview]:
        """The canonical bytes, piece by piece; a vector is a view of its own memory where that is little-endian."""
        yield self.count.to_bytes(_COUNT_BYTES, "little") + bytes([len(self.vectors)])
        for name, vector in sorted(self.vectors.items()):
            label = name.encode("ascii")
            yield bytes([len(label)]) + label + vector.size.to_bytes(_SIZE_BYTES, "little")
            yield np.ascontiguousarray(vector, dtype="<f8").view(np.uint8).data

    def encode(self) -> bytes:
        """The canonical bytes in one piece, for a checkpoint."""
        return b"".join(self.parts())

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        hashed = hashlib.sha256()
        for part in self.parts():
            hashed.update(part)
        return hashed.digest()

    @classmethod
    def decode(cls, content: bytes) -> StepMemory:
        """What `encode` gave; no bytes at all are the memory before the first step. Vectors are views of `content`."""
        if not content:
            return cls()
        reader = _Reader(content)
        count = int.from_bytes(reader.take(_COUNT_BYTES), "little")
        vectors: dict[str, Wide] = {}
        for _ in range(reader.take(1)[0]):
            name = bytes(reader.take(reader.take(_NAME_BYTES)[0])).decode("ascii", "replace")
            size = int.from_bytes(reader.take(_SIZE_BYTES), "little")
            vector = np.frombuffer(reader.take(MEMORY_WORD_BYTES * size), dtype="<f8").astype(
                np.float64, copy=False
            )
            if vectors and name <= max(vectors):
                raise _damage("its names are not in order")
            vectors[name] = vector
        reader.require_end()
        made = cls(count, vectors)
        made.require_finite()
        return made

    def require_finite(self) -> None:
        """Refuse a number that no step leaves behind."""
        for name, vector in self.vectors.items():
            if not np.isfinite(vector).all():
                raise _damage(f"{name} is infinite or NaN somewhere")


class _Reader:
    """Bytes from the front; more than there are is damage."""

    def __init__(self, content: bytes) -> None:
        self._left = memoryview(content)

    def take(self, size: int) -> memoryview:
        if size > len(self._left):
            raise _damage("it ends too early")
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def require_end(self) -> None:
        if len(self._left):
            raise _damage("bytes are left over")


def _damage(what: str) -> LocalProtocolError:
    return LocalProtocolError(
        f"what the step remembered is damaged: {what}; resume from another checkpoint of this run"
    )
