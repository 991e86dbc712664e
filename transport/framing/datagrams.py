"""The fields of the three datagrams of framing: chunk, probe and acknowledgement.

Every datagram begins as `veilsum.transport.lines.datagrams` says; then come these fields in clear and the box. All of
it is associated data of the box, so that a datagram opens only unchanged. All integers are big-endian.

    chunk   life (8) number (8) message (8) floor (8) total (8) chunk_size (4) index (4); box: data
    probe   life (8) number (8) floor (8); box: empty
    ack     life (8) number (8) answered (8); box: delivered_below (8) room (8) max_message (8), then per
            message that is not yet delivered: id (8) length (2) bitmap

A life is the nonce of one start of a party, and numbers grow through it; see `veilsum.transport.framing.endpoint` for
what they are good for.

Implements specs/transport.md, section 4.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from veilsum.transport.lines.datagrams import ACK, CHUNK, HEAD_BYTES, PROBE

if TYPE_CHECKING:
    from veilsum.transport.base import Buffer

LIFE_BYTES = 8
NO_LIFE = bytes(LIFE_BYTES)
MOST_CHUNKS = 1 << 16
LARGEST_NUMBER = 2**48 - 1
"""Of every field of eight bytes but the life: whoever counts on from a foreign number never runs out of its field."""

_CHUNK_FIELDS = struct.Struct(">8sQQQQII")
_PROBE_FIELDS = struct.Struct(">8sQQ")
_ACK_FIELDS = struct.Struct(">8sQQ")
_ACK_BODY = struct.Struct(">QQQ")
_ACK_ENTRY = struct.Struct(">QH")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which piece of which message a datagram carries; messages below `floor` are of no more interest."""

    life: bytes
    number: int
    message: int
    floor: int
    total: int
    chunk_size: int
    index: int

    @property
    def count(self) -> int:
        return chunk_count(self.total, self.chunk_size)

    @property
    def body_size(self) -> int:
        """How long the opened body must be."""
        return min(self.chunk_size, self.total - self.index * self.chunk_size)

    def fields(self) -> bytes:
        return _CHUNK_FIELDS.pack(
            self.life, self.number, self.message, self.floor, self.total, self.chunk_size, self.index
        )


@dataclass(frozen=True, slots=True)
class Probe:
    """A question: what have you got?"""

    life: bytes
    number: int
    floor: int

    def fields(self) -> bytes:
        return _PROBE_FIELDS.pack(self.life, self.number, self.floor)


@dataclass(frozen=True, slots=True)
class Ack:
    """What the receiver has got at the moment; `answered` is the number of the datagram that it answers."""

    life: bytes
    number: int
    answered: int

    def fields(self) -> bytes:
        return _ACK_FIELDS.pack(self.life, self.number, self.answered)


Header: TypeAlias = Chunk | Probe | Ack


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """The body of an acknowledgement; `bitmaps` has a bit per chunk of each message not yet delivered."""

    delivered_below: int
    room: int
    max_message: int
    bitmaps: Mapping[int, int]

    def pack(self) -> bytes:
        room, max_message = min(self.room, LARGEST_NUMBER), min(self.max_message, LARGEST_NUMBER)
        parts = [_ACK_BODY.pack(self.delivered_below, room, max_message)]
        for message, bitmap in self.bitmaps.items():
            packed = bitmap.to_bytes((bitmap.bit_length() + 7) // 8, "big")
            parts += (_ACK_ENTRY.pack(message, len(packed)), packed)
        return b"".join(parts)

    @classmethod
    def parse(cls, body: Buffer) -> ReceiverState | None:
        view = memoryview(body)
        if len(view) < _ACK_BODY.size:
            return None
        delivered_below, room, max_message = _ACK_BODY.unpack_from(view)
        if max(delivered_below, room, max_message) > LARGEST_NUMBER:
            return None
        bitmaps: dict[int, int] = {}
        position = _ACK_BODY.size
        while position < len(view):
            if position + _ACK_ENTRY.size > len(view):
                return None
            message, length = _ACK_ENTRY.unpack_from(view, position)
            position += _ACK_ENTRY.size
            if position + length > len(view) or message > LARGEST_NUMBER:
                return None
            bitmaps[message] = int.from_bytes(view[position : position + length], "big")
            position += length
        return cls(delivered_below, room, max_message, bitmaps)


def stated_bytes(bitmap: int) -> int:
    """What a bitmap adds to an acknowledgement."""
    return _ACK_ENTRY.size + (bitmap.bit_length() + 7) // 8


def chunk_count(total: int, chunk_size: int) -> int:
    """An empty message still travels in one chunk."""
    return max(1, -(-total // chunk_size))


def parse_fields(kind: int, datagram: memoryview) -> tuple[Header, int] | None:
    """The fields, and where the box begins, or None if no datagram of this kind is like this."""
    layout = {CHUNK: _CHUNK_FIELDS, PROBE: _PROBE_FIELDS, ACK: _ACK_FIELDS}[kind]
    end = HEAD_BYTES + layout.size
    if len(datagram) < end:
        return None
    life, *numbers = layout.unpack_from(datagram, HEAD_BYTES)
    if max(numbers) > LARGEST_NUMBER:
        return None
    if kind == ACK:
        return Ack(life, *numbers), end
    if kind == PROBE:
        return Probe(life, *numbers), end
    chunk = Chunk(life, *numbers)
    return (chunk, end) if chunk.chunk_size and chunk.index < chunk.count <= MOST_CHUNKS else None
