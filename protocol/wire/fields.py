"""Field types: the one set of rules for values we send and values we receive.

Each class below is one type that a message field may have. It knows three things:

* `check` accepts a Python value or raises `InvalidField`, and returns the value in its settled form
  (arrays read-only, mappings sorted by party and immutable);
* `plain` turns a settled value into what msgpack packs, and puts tensors on a list, since they travel raw;
* `read` asks a `Source` for a value of this type and for nothing else. It builds the shape; the values are
  judged by `check` when the message is constructed, so both directions obey the same code.

Rejected design: unpack the whole msgpack tree, then validate it. One byte of input can become a dictionary
of 64 bytes, so four megabytes of empty maps take a quarter of a gigabyte before the first check runs. Reading
by type never builds a container that the message does not declare, and needs no nesting limit.

Implements specs/wire-format.md, section 4.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import PartyId, require_party_id
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError

Tensor: TypeAlias = np.ndarray[Any, np.dtype[Any]]

TENSOR_DTYPES: Final = ("|u1", "<u2", "<u4", "<u8", "<f4", "<f8")
"""Words of the two rings, plain floats, and octets for sealed vectors that are too large for `bytes`."""

MAX_INTEGER: Final = 2**64 - 1
DEFAULT_MAX_INTEGER: Final = 2**48 - 1
"""Of rounds, attempts and counts: what follows one, and the sum of one per party, still has eight bytes."""
DEFAULT_MAX_TEXT: Final = 1024
DEFAULT_MAX_BYTES: Final = 65_536
DEFAULT_MAX_ITEMS: Final = 65_536


class Source(Protocol):
    """Where `read` takes values from; the wire reader implements it, bounded by its limits."""

    def scalar(self) -> object:
        """The next nil, boolean, number, text or byte string; a container here is a defect."""

    def skip_nil(self) -> bool:
        """Whether the next value is nil; if so it is consumed."""

    def enter_array(self) -> int:
        """The length of the array that begins here."""

    def enter_map(self) -> int:
        """The number of entries of the map that begins here."""

    def tensor(self) -> Tensor:
        """The next raw tensor, as a view on the received buffer."""


class FieldType(ABC):
    @abstractmethod
    def check(self, value: object) -> object: ...

    def plain(self, value: Any, tensors: list[Tensor]) -> object:
        return value

    def read(self, source: Source) -> object:
        return source.scalar()


def wrong_type(expected: str, value: object) -> InvalidField:
    return InvalidField(WireDefect.WRONG_TYPE, f"expected {expected}, not {type(value).__name__}")


def out_of_bounds(problem: str) -> InvalidField:
    return InvalidField(WireDefect.OUT_OF_BOUNDS, problem)


@dataclass(frozen=True, slots=True)
class Size:
    """How many bytes or items a value may have."""

    least: int
    most: int
    or_empty: bool = False

    def require(self, length: int, unit: str) -> None:
        if self.least <= length <= self.most or (self.or_empty and length == 0):
            return
        allowed = f"{self.most}" if self.least == self.most else f"{self.least} to {self.most}"
        raise out_of_bounds(f"{length} {unit}; allowed: {'0 or ' if self.or_empty else ''}{allowed}")


@dataclass(frozen=True, slots=True)
class IntegerField(FieldType):
    most: int = DEFAULT_MAX_INTEGER

    def check(self, value: object) -> int:
        if type(value) is not int:
            raise wrong_type("an integer", value)
        if not 0 <= value <= self.most:
            raise out_of_bounds(f"{value} is not between 0 and {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class FloatField(FieldType):
    def check(self, value: object) -> float:
        if type(value) is not float:
            raise wrong_type("a float", value)
        if not math.isfinite(value):
            raise out_of_bounds(f"{value} is not finite")
        return value


@dataclass(frozen=True, slots=True)
class BooleanField(FieldType):
    def check(self, value: object) -> bool:
        if type(value) is not bool:
            raise wrong_type("a boolean", value)
        return value


@dataclass(frozen=True, slots=True)
class TextField(FieldType):
    size: Size

    def check(self, value: object) -> str:
        if type(value) is not str:
            raise wrong_type("text", value)
        try:
            length = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise InvalidField(WireDefect.BAD_TEXT, "text has no UTF-8 form") from None
        self.size.require(length, "bytes of text")
        return value


@dataclass(frozen=True, slots=True)
class BytesField(FieldType):
    size: Size

    def check(self, value: object) -> bytes:
        if type(value) is not bytes:
            raise wrong_type("bytes", value)
        self.size.require(len(value), "bytes")
        return value


@dataclass(frozen=True, slots=True)
class PartyField(FieldType):
    def check(self, value: object) -> PartyId:
        if type(value) is not str:
            raise wrong_type("a party name", value)
        try:
            return require_party_id(value)
        except Rejection as rejection:
            raise out_of_bounds(rejection.detail) from None


@dataclass(frozen=True, slots=True)
class OptionalField(FieldType):
    item: FieldType

    def check(self, value: object) -> object:
        return None if value is None else self.item.check(value)

    def plain(self, value: Any, tensors: list[Tensor]) -> object:
        return None if value is None else self.item.plain(value, tensors)

    def read(self, source: Source) -> object:
        return None if source.skip_nil() else self.item.read(source)


@dataclass(frozen=True, slots=True)
class TupleField(FieldType):
    item: FieldType
    size: Size

    def check(self, value: object) -> tuple[object, ...]:
        if type(value) is not tuple:
            raise wrong_type("a tuple", value)
        self.size.require(len(value), "items")
        settled = []
        for index, item in enumerate(value):
            try:
                settled.append(self.item.check(item))
            except InvalidField as problem:
                raise problem.inside(f"[{index}]") from None
        return tuple(settled)

    def plain(self, value: Any, tensors: list[Tensor]) -> object:
        return [self.item.plain(item, tensors) for item in value]

    def read(self, source: Source) -> object:
        length = source.enter_array()
        self.size.require(length, "items")
        return tuple([self.item.read(source) for _ in range(length)])


_PARTY: Final = PartyField()


@dataclass(frozen=True, slots=True)
class MappingField(FieldType):
    item: FieldType
    size: Size

    def check(self, value: object) -> Mapping[PartyId, object]:
        if not isinstance(value, Mapping):
            raise wrong_type("a mapping", value)
        self.size.require(len(value), "parties")
        settled = {}
        for party, item in value.items():
            try:
                settled[_PARTY.check(party)] = self.item.check(item)
            except InvalidField as problem:
                raise problem.inside(f"[{party!r}]") from None
        return MappingProxyType(dict(sorted(settled.items(), key=lambda entry: entry[0])))

    def plain(self, value: Any, tensors: list[Tensor]) -> object:
        return {party: self.item.plain(item, tensors) for party, item in value.items()}

    def read(self, source: Source) -> object:
        length = source.enter_map()
        self.size.require(length, "parties")
        entries: dict[object, object] = {}
        for _ in range(length):
            party = source.scalar()
            if party in entries:
                raise WireError(WireDefect.DUPLICATE_KEY, f"{party!r}")
            entries[party] = self.item.read(source)
        return entries


@dataclass(frozen=True, slots=True)
class TensorField(FieldType):
    """A vector. Its numbers are not looked at here: what a NaN means is for the receiver's machine to say."""

    size: Size

    def check(self, value: object) -> Tensor:
        if type(value) is not np.ndarray:
            raise wrong_type("a numpy array", value)
        if value.ndim != 1 or not value.flags.c_contiguous:
            raise InvalidField(WireDefect.WRONG_TYPE, "expected one contiguous dimension")
        if value.dtype.str not in TENSOR_DTYPES:
            raise InvalidField(
                WireDefect.WRONG_TYPE, f"dtype {value.dtype.str} is not one of {', '.join(TENSOR_DTYPES)}"
            )
        self.size.require(value.size, "numbers")
        if not value.flags.writeable:
            return value
        settled = value.view()
        settled.flags.writeable = False
        return settled

    def plain(self, value: Any, tensors: list[Tensor]) -> object:
        tensors.append(value)
        return [value.dtype.str, value.size]

    def read(self, source: Source) -> object:
        return source.tensor()
