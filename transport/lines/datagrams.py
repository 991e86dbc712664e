"""How every datagram begins, and which kinds there are.

    open, accept                   magic (3) kind (1) body
    confirm, chunk, probe, ack     magic (3) kind (1) line (16) number (8), framing's fields, box

Everything before the box is its associated data, so that a datagram opens only unchanged. The number counts the
boxes of one direction of the line from 0, and the first one of the opener is `confirm`, without fields. All integers
are big-endian.

Implements specs/transport.md, section 4.
"""

from __future__ import annotations

import struct

MAGIC = b"VS2"
CHUNK, PROBE, ACK, OPEN, ACCEPT, CONFIRM = range(1, 7)
LINE_BYTES = 16

_START = struct.Struct(">3sB")
_HEAD = struct.Struct(">3sB16sQ")

START_BYTES = _START.size
HEAD_BYTES = _HEAD.size


def pack_handshake(kind: int, body: bytes) -> bytes:
    return _START.pack(MAGIC, kind) + body


def pack_head(kind: int, line: bytes, number: int) -> bytes:
    return _HEAD.pack(MAGIC, kind, line, number)


def kind_of_datagram(datagram: memoryview) -> int | None:
    """The kind, or None if no datagram of ours begins like this."""
    if len(datagram) < START_BYTES or datagram[:3] != MAGIC:
        return None
    kind = datagram[3]
    if kind in (OPEN, ACCEPT):
        return kind
    return kind if CHUNK <= kind <= CONFIRM and len(datagram) >= HEAD_BYTES else None


def parse_head(datagram: memoryview) -> tuple[bytes, int]:
    """The line and the number of a sealed datagram."""
    _, _, line, number = _HEAD.unpack_from(datagram)
    return line, number
