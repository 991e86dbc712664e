"""How much a receiver is willing to hold: every length on the wire is bounded here or by its message.

Implements specs/wire-format.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from veilsum.protocol.errors import ParameterError

LONGEST_FIELDS: Final = 2**32 - 1
PREFIX_BYTES: Final = 4
PADDING_BYTES: Final = 64
"""At most 7 bytes before each vector of a message, and there are fewer than nine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one body; a sender with the same limits refuses to send what the receiver would refuse."""

    max_message_bytes: int = 2**30
    max_fields_bytes: int = 2**23
    max_parties: int = 2**14
    max_items: int = 2**16

    def __post_init__(self) -> None:
        bounds = {name: getattr(self, name) for name in self.__slots__}
        problems = [f"{name} must be at least 1, not {bound}" for name, bound in bounds.items() if bound < 1]
        if self.max_fields_bytes > LONGEST_FIELDS:
            problems.append(f"max_fields_bytes must be below 2^32, not {self.max_fields_bytes}")
        if problems:
            raise ParameterError(problems)

    def for_vectors(self, vector_bytes: int | None) -> Limits:
        """The same, where the vectors of a message are known to have so many bytes together at most."""
        if vector_bytes is None:
            return self
        padded = PREFIX_BYTES + self.max_fields_bytes + vector_bytes + PADDING_BYTES
        return replace(self, max_message_bytes=min(self.max_message_bytes, padded))


DEFAULT_LIMITS: Final = Limits()
