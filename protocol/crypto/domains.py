"""The protocol version, and byte strings that cannot be mistaken for one another.

Two rules hold for everything that is hashed, signed, or used to derive a key:

* It begins with a domain tag that names its use and the protocol version, so that bytes made for one use,
  or by another version, mean nothing anywhere else.
* Parts of variable length carry their length in front, so that different lists of parts never give the same
  bytes: ("ab", "c") and ("a", "bc") differ.

Rejected: separators (they need escaping), and msgpack here (several encodings of one value exist, so two
parties could hash the same content to different digests).

Implements specs/keys.md, section 2.
"""

from __future__ import annotations

from veilsum.protocol.errors import LocalProtocolError

PROTOCOL_VERSION = 8
DIGEST_BYTES = 32

_LONGEST_PART = 2**32 - 1


def domain_tag(use: str) -> bytes:
    """The tag of one use of one primitive, for example `veilsum/v8/kdf/pair-mask`."""
    return f"veilsum/v{PROTOCOL_VERSION}/{use}".encode("ascii")


def length_prefixed(*parts: bytes) -> bytes:
    """Each part behind its length in four bytes, big endian: an injective encoding of a list of parts."""
    framed = bytearray()
    for part in parts:
        if len(part) > _LONGEST_PART:
            raise LocalProtocolError(f"a part of {len(part)} bytes is too long to frame: pass its digest")
        framed += len(part).to_bytes(4, "big")
        framed += part
    return bytes(framed)
