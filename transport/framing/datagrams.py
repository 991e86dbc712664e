"""The bytes of the three datagrams: chunk, probe and acknowledgement.

Every datagram is a header in clear followed by a sealed body. The header, extended by the names of sender
and receiver, is the associated data of the seal, so that a datagram opens only unchanged, at the address it
was made for. All integers are big-endian.

    head    magic (3) kind (1) from_life (8) to_life (8) invitation (8) datagram_number (8)
    chunk   head message (8) floor (8) total (8) chunk_size (4) index (4); body: data
    probe   head floor (8); body: empty
    ack     head; body: delivered_below (8) room (8) max_message (8), then per message that is not yet
            delivered: id (8) length (2) bitmap

A life is the nonce of one start of a party. An invitation is a number that a receiver's life gives out with
every acknowledgement and that a sender's life echoes; see `veilsum.transport.framing.endpoint` for what they are
good for.

Implements specs/transport.md, section 4.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer

MAGIC = b"VS1"
LIFE_BYTES = 8
NO_LIFE = bytes(LIFE_BYTES)
MOST_CHUNKS = 1 << 16

_CHUNK, _PROBE, _ACK = 1, 2, 3
_HEAD = struct.Struct(">3sB8s8sQQ")
_CHUNK_TAIL = struct.Struct(">QQQII")
_PROBE_TAIL = struct.Struct(">Q")
_ACK_BODY = struct.Struct(">QQQ")
_ACK_ENTRY = struct.Struct(">QH")
_CHECKSUM_BYTES = 16

LONGEST_HEADER = _HEAD.size + _CHUNK_TAIL.size


@dataclass(frozen=True, slots=True)
class Head:
    """What every datagram says first: between which lives it travels, and its number."""

    from_life: bytes
    to_life: bytes
    invitation: int
    datagram_number: int

    def pack(self, kind: int) -> bytes:
        return _HEAD.pack(MAGIC, kind, self.from_life, self.to_life, self.invitation, self.datagram_number)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which piece of which message a datagram carries; messages below `floor` are of no more interest."""

    head: Head
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

    def header(self) -> bytes:
        tail = _CHUNK_TAIL.pack(self.message, self.floor, self.total, self.chunk_size, self.index)
        return self.head.pack(_CHUNK) + tail


@dataclass(frozen=True, slots=True)
class Probe:
    """A question: who are you, and what have you got?"""

    head: Head
    floor: int

    def header(self) -> bytes:
        return self.head.pack(_PROBE) + _PROBE_TAIL.pack(self.floor)


@dataclass(frozen=True, slots=True)
class Ack:
    """What the receiver has got at the moment; `head.datagram_number` is that of the datagram it answers."""

    head: Head

    def header(self) -> bytes:
        return self.head.pack(_ACK)


Header: TypeAlias = Chunk | Probe | Ack


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """The body of an acknowledgement; `bitmaps` has a bit per chunk of each message not yet delivered."""

    delivered_below: int
    room: int
    max_message: int
    bitmaps: Mapping[int, int]

    def pack(self) -> bytes:
        parts = [_ACK_BODY.pack(self.delivered_below, self.room, self.max_message)]
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
        bitmaps: dict[int, int] = {}
        position = _ACK_BODY.size
        while position < len(view):
            if position + _ACK_ENTRY.size > len(view):
                return None
            message, length = _ACK_ENTRY.unpack_from(view, position)
            position += _ACK_ENTRY.size
            if position + length > len(view):
                return None
            bitmaps[message] = int.from_bytes(view[position : position + length], "big")
            position += length
        return cls(delivered_below, room, max_message, bitmaps)


def chunk_count(total: int, chunk_size: int) -> int:
    """An empty message still travels in one chunk."""
    return max(1, -(-total // chunk_size))


def parse_header(datagram: memoryview) -> tuple[Header, int] | None:
    """The header and its length, or None if no datagram of ours begins like this."""
    if len(datagram) < _HEAD.size:
        return None
    magic, kind, from_life, to_life, invitation, number = _HEAD.unpack_from(datagram)
    if magic != MAGIC:
        return None
    head = Head(from_life, to_life, invitation, number)
    if kind == _ACK:
        return Ack(head), _HEAD.size
    if kind == _PROBE and len(datagram) >= _HEAD.size + _PROBE_TAIL.size:
        return Probe(head, *_PROBE_TAIL.unpack_from(datagram, _HEAD.size)), _HEAD.size + _PROBE_TAIL.size
    if kind == _CHUNK and len(datagram) >= LONGEST_HEADER:
        chunk = Chunk(head, *_CHUNK_TAIL.unpack_from(datagram, _HEAD.size))
        if chunk.chunk_size and chunk.index < chunk.count <= MOST_CHUNKS:
            return chunk, LONGEST_HEADER
    return None


def associated_data(header: bytes, sender: Address, receiver: Address) -> bytes:
    """The header with both names behind it: what a seal is bound to."""
    names = [name.encode() for name in (sender, receiver)]
    return header + b"".join(len(name).to_bytes(2, "big") + name for name in names)


def seal_with_checksum(receiver: Address, header: bytes, data: Buffer) -> bytes:  # noqa: ARG001
    """A seal against damage only, for links that nobody attacks: simulations and tests."""
    return b"".join((data, _checksum(header, data)))


def open_with_checksum(sender: Address, header: bytes, sealed: Buffer) -> memoryview | None:  # noqa: ARG001
    view = memoryview(sealed)
    data, checksum = view[:-_CHECKSUM_BYTES], view[-_CHECKSUM_BYTES:]
    return data if hmac.compare_digest(checksum, _checksum(header, data)) else None


def _checksum(header: bytes, data: Buffer) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(data)
    return digest.digest()[:_CHECKSUM_BYTES]
