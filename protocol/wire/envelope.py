"""Signed envelopes: who says what to whom, in which session, round and attempt, under which rules.

    envelope = header | u64 length of the body | signature, 64 bytes | zero padding to a multiple of 8 | body

The header (header.py) is the associated data of everything. The signature covers
SHA-256(header | SHA-256(body)), so the body, which may be hundreds of megabytes, is hashed once on each side.
A body that goes to many receivers is hashed once for all of them: `Body` remembers its digest, and only the
headers are signed again.

`open_envelope` compares the header with what this party expects, then verifies the signature, and only then
decodes the body. Until the signature is verified nobody is to blame: an outsider may write any name into a
header, and a broker may replay an honest party's message from another session. Those refusals are
`Rejection`; what a verified sender got wrong inside the body is a `RemoteProtocolError` that names it.

Implements specs/wire-format.md, section 3.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from veilsum.protocol.crypto.signing import SIGNATURE_BYTES, SigningKey, verify_signature
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.codec import Buffer, decode_message, encode_message, padding
from veilsum.protocol.wire.defects import WireDefect, WireError
from veilsum.protocol.wire.header import (
    Hash,
    HashOrEmpty,
    Header,
    decode_header,
    require_our_suite,
    require_our_version,
)
from veilsum.protocol.wire.limits import DEFAULT_LIMITS, Limits
from veilsum.protocol.wire.messages import Message
from veilsum.protocol.wire.records import record

__all__ = [
    "Body",
    "Envelope",
    "Expectation",
    "Header",
    "decode_envelope",
    "encode_envelope",
    "join",
    "open_envelope",
    "sign_envelope",
]

SIGNATURE_DOMAIN: Final = "envelope"

_BODY_LENGTH: Final = struct.Struct("<Q")


class Body:
    """The buffers of one encoded message; hashed at most once."""

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self.buffers = tuple(memoryview(buffer).toreadonly().cast("B") for buffer in buffers)

    @classmethod
    def of(cls, message: Message, limits: Limits = DEFAULT_LIMITS) -> Body:
        """The body of a message; one beyond the limits is our caller's mistake."""
        return cls(encode_message(message, limits))

    def __len__(self) -> int:
        return sum(len(buffer) for buffer in self.buffers)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of all buffers, one after the other."""
        running = hashlib.sha256()
        for buffer in self.buffers:
            running.update(buffer)
        return running.digest()

    def view(self) -> memoryview:
        """The body as one buffer: without a copy when it was received, joined when it was made here."""
        return self.buffers[0] if len(self.buffers) == 1 else memoryview(b"".join(self.buffers))

    def __repr__(self) -> str:
        return f"<body, {len(self)} bytes>"


@dataclass(frozen=True)
class Envelope:
    """A header, a body and a signature that has the right length and has not been verified."""

    header: Header
    body: Body
    signature: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.signature) != SIGNATURE_BYTES:
            raise LocalProtocolError(f"a signature is {SIGNATURE_BYTES} bytes, not {len(self.signature)}")

    @functools.cached_property
    def digest(self) -> bytes:
        """What the signature covers; also the identity of the message for the replay window."""
        return hashlib.sha256(self.header.encode() + self.body.digest).digest()


@record
@dataclass(frozen=True, slots=True)
class Expectation:
    """What the receiver is, and what it holds to be true."""

    receiver: PartyId
    session: HashOrEmpty
    roster_hash: Hash
    config_hash: Hash


def sign_envelope(header: Header, body: Body, signing_key: SigningKey) -> Envelope:
    """The envelope of a header and a body, with its sender's signature over the digest of both."""
    unsigned = Envelope(header, body, bytes(SIGNATURE_BYTES))
    return Envelope(header, body, signing_key.sign(SIGNATURE_DOMAIN, unsigned.digest))


def encode_envelope(envelope: Envelope) -> list[Buffer]:
    """The buffers of an envelope, in order; nothing of the body is copied."""
    front = envelope.header.encode() + _BODY_LENGTH.pack(len(envelope.body)) + envelope.signature
    return [front + bytes(padding(len(front))), *envelope.body.buffers]


def join(buffers: Iterable[Buffer]) -> bytes:
    """One contiguous copy, for a transport that cannot send a list of buffers."""
    return b"".join(buffers)


def decode_envelope(data: Buffer, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """Split received bytes into header, signature and body; the body stays a view on `data`."""
    view = memoryview(data).toreadonly().cast("B")
    header, position = decode_header(view)
    start = position + _BODY_LENGTH.size + SIGNATURE_BYTES
    if len(view) < start:
        raise WireError(WireDefect.TRUNCATED, "no signature")
    (length,) = _BODY_LENGTH.unpack_from(view, position)
    signature = bytes(view[start - SIGNATURE_BYTES : start])
    if length > limits.max_message_bytes:
        raise WireError(WireDefect.OVERSIZE, f"{length} bytes announced, allowed {limits.max_message_bytes}")
    body_start = start + padding(start)
    if len(view) != body_start + length:
        defect = WireDefect.TRUNCATED if len(view) < body_start + length else WireDefect.LEFTOVER_BYTES
        raise WireError(defect, f"a body of {length} bytes announced, {max(0, len(view) - body_start)} here")
    if any(view[start:body_start]):
        raise WireError(WireDefect.NOT_CANONICAL, "padding is not zero")
    return Envelope(header, Body([view[body_start:]]), signature)


def open_envelope(
    envelope: Envelope, public_key: bytes, expected: Expectation, limits: Limits = DEFAULT_LIMITS
) -> Message:
    """The message inside, once header and signature are right; `public_key` is the header's sender's."""
    require_expected(envelope.header, expected)
    verify_signature(public_key, SIGNATURE_DOMAIN, envelope.digest, envelope.signature)
    header = envelope.header
    try:
        return decode_message(header.kind, header.stamp(), envelope.body.view(), limits)
    except WireError as defect:
        raise defect.blamed_on(header.sender) from defect


def require_expected(header: Header, expected: Expectation) -> None:
    """Refuse a header of another version, suite, receiver, session, roster or configuration."""
    require_our_version(header.version)
    require_our_suite(header.suite)
    if header.receiver != expected.receiver:
        raise Rejection(AbortReason.WRONG_RECEIVER, f"{header.receiver}, and this is {expected.receiver}")
    _require_same(AbortReason.WRONG_SESSION, header.session, expected.session)
    _require_same(AbortReason.WRONG_ROSTER, header.roster_hash, expected.roster_hash)
    _require_same(AbortReason.WRONG_CONFIG, header.config_hash, expected.config_hash)


def _require_same(reason: AbortReason, theirs: bytes, ours: bytes) -> None:
    if theirs != ours:
        raise Rejection(
            reason, f"theirs is {theirs.hex()[:16] or 'none'}, ours is {ours.hex()[:16] or 'none'}"
        )
