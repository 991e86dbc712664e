"""What can be wrong with bytes: one name per defect, so that a refusal says which rule was broken.

Implements specs/wire-format.md, section 7.
"""

from __future__ import annotations

import enum

from veilsum.protocol.errors import AbortReason, EncodingError, Rejection


class WireDefect(enum.Enum):
    """The rule of specs/wire-format.md that an encoding breaks; the value is the text shown to people."""

    NOT_AN_ENVELOPE = "does not begin as an envelope"
    WRONG_VERSION = "wire versions differ"
    WRONG_SUITE = "cryptographic suites differ"
    TRUNCATED = "ends too early"
    LEFTOVER_BYTES = "bytes are left over"
    OVERSIZE = "is larger than the limits allow"
    UNKNOWN_KIND = "message kind is not registered"
    UNKNOWN_FIELD = "has a field that the message does not have"
    MISSING_FIELD = "lacks a field"
    DUPLICATE_KEY = "has one key twice"
    WRONG_TYPE = "value has the wrong type"
    OUT_OF_BOUNDS = "value is out of bounds"
    BAD_TEXT = "text is not UTF-8"
    NESTING = "container where the message has none"
    EXTENSION_TYPE = "msgpack extension type or reserved byte"
    NOT_CANONICAL = "is not the one canonical encoding"


_VERSION_DEFECTS = frozenset({WireDefect.WRONG_VERSION, WireDefect.WRONG_SUITE})


class WireError(Rejection):
    """Received bytes are not the encoding of a message."""

    def __init__(self, defect: WireDefect, detail: str = "") -> None:
        self.defect = defect
        reason = AbortReason.WRONG_VERSION if defect in _VERSION_DEFECTS else AbortReason.BAD_ENCODING
        super().__init__(reason, f"{defect.value}: {detail}" if detail else defect.value)


class InvalidField(EncodingError):
    """A value does not fit the declared type of its field; `path` says which one, from the outside in."""

    def __init__(self, defect: WireDefect, problem: str, path: str = "") -> None:
        self.defect = defect
        self.problem = problem
        self.path = path
        super().__init__(f"{path}: {problem}" if path else problem)

    def inside(self, outer: str) -> InvalidField:
        """The same, where the field is part of a value at `outer`."""
        return InvalidField(self.defect, self.problem, outer + self.path)
