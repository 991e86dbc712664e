"""Messages to bytes and back: msgpack for the fields, raw bytes for the tensors.

    body = u32 length of the fields | fields, one msgpack map | tensors, each from a multiple of 8 bytes on

The format is specified in specs/wire-format.md. Encoding copies no tensor: it returns buffers that point into
the arrays. Decoding copies no tensor either: the arrays of a decoded message are read-only views on the
received buffer, which they keep alive.

Every message has exactly one encoding. The decoder reads by type (see fields.py), then encodes what it
read and compares: a longer integer form, another key order or a float in 32 bits is refused without a rule
of its own. That costs a second packing of the fields, which are small, and never touches a tensor.

Rejected designs: tensors inside msgpack (two copies more, twenty milliseconds for 40 MiB), and a rule per
non-canonical form (each forgotten one gives a message a second encoding, hence a second digest).

Implements specs/wire-format.md, sections 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgpack  # type: ignore[import-untyped]  # it ships no types
import numpy as np

from veilsum.protocol.errors import EncodingError
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError
from veilsum.protocol.wire.fields import TENSOR_DTYPES, FieldType, Tensor
from veilsum.protocol.wire.limits import DEFAULT_LIMITS, Limits
from veilsum.protocol.wire.messages import Message, Stamp, kind_of, message_class, message_schema

__all__ = [
    "DEFAULT_LIMITS",
    "Buffer",
    "Limits",
    "WireDefect",
    "WireError",
    "decode_message",
    "encode_message",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

ALIGNMENT: Final = 8
_LENGTH: Final = struct.Struct("<I")
_PACKER_BYTES: Final = 1024
_NIL: Final = 0xC0
_ARRAY_BYTES: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_MAP_BYTES: Final = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
_CONTAINER_BYTES: Final = _ARRAY_BYTES | _MAP_BYTES
_REFUSED_BYTES: Final = frozenset([0xC1, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)])

T = TypeVar("T")


def padding(length: int) -> int:
    """How many zero bytes follow `length` bytes so that the next byte is aligned."""
    return -length % ALIGNMENT


def encode_message(message: Message, limits: Limits = DEFAULT_LIMITS) -> tuple[Buffer, ...]:
    """The body of a message as buffers that, joined, are its canonical bytes; tensors are not copied."""
    kind = kind_of(message)
    tensors: list[Tensor] = []
    return _layout(_pack(_message_plain(message, tensors)), tensors, limits, kind)


def decode_message(kind: str, stamp: Stamp, body: Buffer, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The message in a received body, or `WireError`; kind and stamp come from the envelope header."""
    cls = message_class(kind)
    fields = {name: field for name, field in message_schema(cls).fields.items() if name != "stamp"}
    reader = _BodyReader(body, limits)

    def build() -> Message:
        return cls(stamp, **_read_fields(reader, fields))

    return _decode(reader, build, _message_plain)


def _message_plain(message: Message, tensors: list[Tensor]) -> object:
    return {
        name: field.plain(getattr(message, name), tensors)
        for name, field in message_schema(type(message)).fields.items()
        if name != "stamp"
    }


def _pack(plain: object) -> bytes:
    """A packer starts with a buffer of 256 KiB unless told otherwise, far more than most messages need."""
    return cast(bytes, msgpack.Packer(use_bin_type=True, buf_size=_PACKER_BYTES).pack(plain))


def _layout(fields: bytes, tensors: list[Tensor], limits: Limits, what: str) -> tuple[Buffer, ...]:
    if len(fields) > limits.max_fields_bytes:
        raise EncodingError(
            f"{what}: {len(fields)} bytes of fields exceed max_fields_bytes = {limits.max_fields_bytes}; "
            "large data belongs in a Tensor field"
        )
    buffers: list[Buffer] = [_LENGTH.pack(len(fields)) + fields]
    length = len(buffers[0])
    for tensor in tensors:
        gap = padding(length)
        if gap:
            buffers.append(bytes(gap))
        if tensor.nbytes:
            buffers.append(tensor.data.cast("B"))
        length += gap + tensor.nbytes
    if length > limits.max_message_bytes:
        raise EncodingError(f"{what}: {length} bytes exceed max_message_bytes = {limits.max_message_bytes}")
    return tuple(buffers)


def _decode(reader: _BodyReader, build: Callable[[], T], plain: Callable[[T, list[Tensor]], object]) -> T:
    try:
        value = build()
    except InvalidField as problem:
        raise WireError(problem.defect, str(problem)) from None
    reader.require_end()
    if _pack(plain(value, [])) != reader.fields:
        raise WireError(WireDefect.NOT_CANONICAL, "the fields have another, canonical encoding")
    return value


def _read_fields(reader: _BodyReader, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for _ in range(reader.enter_fields()):
        name = reader.scalar()
        if not isinstance(name, str) or name not in fields:
            raise WireError(WireDefect.UNKNOWN_FIELD, f"{name!r:.80}")
        if name in values:
            raise WireError(WireDefect.DUPLICATE_KEY, name)
        values[name] = fields[name].read(reader)
    missing = fields.keys() - values.keys()
    if missing:
        raise WireError(WireDefect.MISSING_FIELD, ", ".join(sorted(missing)))
    return values


class _BodyReader:
    """Reads one body from front to back; implements `Source`.

    The unpacker is only ever asked for scalars and for the headers of containers, so it allocates nothing
    that the message does not declare.
    """

    def __init__(self, body: Buffer, limits: Limits) -> None:
        self._body = memoryview(body).toreadonly().cast("B")
        self._limits = limits
        self.fields = self._fields_view()
        self._tensors_end = _LENGTH.size + len(self.fields)
        size = max(1, len(self.fields))
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=size,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
        self._unpacker.feed(self.fields)

    def _fields_view(self) -> memoryview:
        if len(self._body) > self._limits.max_message_bytes:
            raise WireError(
                WireDefect.OVERSIZE, f"{len(self._body)} bytes, allowed {self._limits.max_message_bytes}"
            )
        if len(self._body) < _LENGTH.size:
            raise WireError(WireDefect.TRUNCATED, "no length of the fields")
        (length,) = _LENGTH.unpack_from(self._body)
        if length > self._limits.max_fields_bytes:
            raise WireError(
                WireDefect.OVERSIZE, f"{length} bytes of fields, allowed {self._limits.max_fields_bytes}"
            )
        if length > len(self._body) - _LENGTH.size:
            raise WireError(WireDefect.TRUNCATED, f"{length} bytes of fields announced")
        return self._body[_LENGTH.size : _LENGTH.size + length]

    def scalar(self) -> object:
        if self._peek() in _CONTAINER_BYTES:
            raise WireError(WireDefect.NESTING, f"at byte {self._position()}")
        return self._guarded(self._unpacker.unpack)

    def skip_nil(self) -> bool:
        if self._peek() != _NIL:
            return False
        self._unpacker.skip()
        return True

    def enter_array(self) -> int:
        return self._enter(_ARRAY_BYTES, "an array", self._limits.max_items, 1)

    def enter_map(self) -> int:
        return self._enter(_MAP_BYTES, "a map", self._limits.max_parties, 2)

    def enter_fields(self) -> int:
        return self._enter(_MAP_BYTES, "the map of fields", self._limits.max_items, 2)

    def _enter(self, leading: frozenset[int], expected: str, most: int, bytes_per_item: int) -> int:
        if self._peek() not in leading:
            raise WireError(WireDefect.WRONG_TYPE, f"expected {expected} at byte {self._position()}")
        is_array = leading is _ARRAY_BYTES
        read = self._unpacker.read_array_header if is_array else self._unpacker.read_map_header
        length = cast(int, self._guarded(read))
        if length > most:
            raise WireError(WireDefect.OVERSIZE, f"{length} items, allowed {most}")
        if length * bytes_per_item > len(self.fields) - self._position():
            raise WireError(WireDefect.TRUNCATED, f"{length} items announced")
        return length

    def tensor(self) -> Tensor:
        if self.enter_array() != 2:
            raise WireError(WireDefect.WRONG_TYPE, "a tensor is announced as [dtype, count]")
        dtype, count = self.scalar(), self.scalar()
        if dtype not in TENSOR_DTYPES:
            raise WireError(WireDefect.WRONG_TYPE, f"{dtype!r:.80} is not one of {', '.join(TENSOR_DTYPES)}")
        if type(count) is not int or count < 0:
            raise WireError(WireDefect.WRONG_TYPE, f"{count!r:.80} is not a number of items")
        start = self._tensors_end + padding(self._tensors_end)
        end = start + count * np.dtype(dtype).itemsize
        if end > len(self._body):
            raise WireError(WireDefect.TRUNCATED, f"a tensor of {count} x {dtype} announced")
        if any(self._body[self._tensors_end : start]):
            raise WireError(WireDefect.NOT_CANONICAL, "padding is not zero")
        self._tensors_end = end
        return np.ndarray((count,), dtype=dtype, buffer=self._body, offset=start)

    def require_end(self) -> None:
        if self._position() != len(self.fields):
            raise WireError(
                WireDefect.LEFTOVER_BYTES, f"{len(self.fields) - self._position()} after the fields"
            )
        if self._tensors_end != len(self._body):
            left = len(self._body) - self._tensors_end
            raise WireError(WireDefect.LEFTOVER_BYTES, f"{left} after the tensors")

    def _position(self) -> int:
        position: int = self._unpacker.tell()
        return position

    def _peek(self) -> int:
        position: int = self._unpacker.tell()
        try:
            first = self.fields[position]
        except IndexError:
            raise WireError(WireDefect.TRUNCATED, "the fields end too early") from None
        if first in _REFUSED_BYTES:
            raise WireError(WireDefect.EXTENSION_TYPE, f"{first:#04x} at byte {position}")
        return first

    def _guarded(self, read: Callable[[], object]) -> object:
        """The unpacker refuses a length beyond its buffer as too long: here that is an early end."""
        try:
            return read()
        except UnicodeDecodeError:
            raise WireError(WireDefect.BAD_TEXT, f"at byte {self._position()}") from None
        except (msgpack.OutOfData, ValueError):
            raise WireError(WireDefect.TRUNCATED, f"at byte {self._position()}") from None
