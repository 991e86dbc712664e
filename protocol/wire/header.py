"""The envelope header: the context that the signature of every message is bound to.

    "VSUM" | u16 version | u16 suite | u64 round | u64 attempt | u64 sequence
    then, each behind its length in one byte:
    kind, session, phase, sender, receiver, roster hash, config hash, model hash

Numbers are little-endian. Every part has a fixed width or its length in front, so a header has exactly one
encoding, no byte of it can move into a neighbouring part, and the largest is far below a kilobyte. The first
eight bytes are the same for every version to come, so that a version mismatch can always be named.

Rejected: a msgpack header. Its several encodings of one value would need the canonical check before anything
is authenticated, and an implementer in another language would need a msgpack writer to compute a label.

Implements specs/wire-format.md, section 2.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Annotated, Final

from veilsum.protocol.crypto.domains import PROTOCOL_VERSION
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError
from veilsum.protocol.wire.fields import MAX_INTEGER
from veilsum.protocol.wire.messages import (
    HASH_BYTES,
    MAX_NAME_BYTES,
    AtMost,
    Length,
    MaxLength,
    Message,
    Stamp,
    is_name,
    kind_of,
)
from veilsum.protocol.wire.records import record

MAGIC: Final = b"VSUM"
SUITE: Final = 1
"""Ed25519, X25519, RSA-3072 OAEP-SHA256, AES-256 (CTR and GCM), HKDF-SHA256, SHA-256."""

_PREAMBLE: Final = struct.Struct("<4sHH")
_COUNTERS: Final = struct.Struct("<QQQ")
_PARTS: Final = ("kind", "session", "phase", "sender", "receiver", "roster_hash", "config_hash", "model_hash")
_TEXT_PARTS: Final = frozenset({"kind", "phase", "sender", "receiver"})

Hash = Annotated[bytes, Length(HASH_BYTES)]
HashOrEmpty = Annotated[bytes, Length(HASH_BYTES, or_empty=True)]
Name = Annotated[str, MaxLength(MAX_NAME_BYTES)]


@record
@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What stands before a body in the clear: what is carried, of which attempt, from whom to whom, agreed on what."""

    version: Annotated[int, AtMost(0xFFFF)] = PROTOCOL_VERSION
    suite: Annotated[int, AtMost(0xFFFF)] = SUITE
    kind: Name
    session: HashOrEmpty
    round: int
    attempt: int
    phase: Name
    sender: PartyId
    receiver: PartyId
    sequence: Annotated[int, AtMost(MAX_INTEGER)]
    roster_hash: Hash
    config_hash: Hash
    model_hash: HashOrEmpty

    @classmethod
    def of(
        cls,
        message: Message,
        *,
        phase: str,
        sender: PartyId,
        receiver: PartyId,
        sequence: int,
        roster_hash: bytes,
        config_hash: bytes,
    ) -> Header:
        """The header under which a message travels; kind and stamp are the message's own."""
        stamp = message.stamp
        return cls(
            kind=kind_of(message),
            session=stamp.session,
            round=stamp.round,
            attempt=stamp.attempt,
            phase=phase,
            sender=sender,
            receiver=receiver,
            sequence=sequence,
            roster_hash=roster_hash,
            config_hash=config_hash,
            model_hash=stamp.model_hash,
        )

    def require_consistent(self) -> None:
        """Refuse kinds and phases that are no names, and a message to its own sender."""
        for name in (self.kind, self.phase):
            if not is_name(name):
                raise ValueError(f"{name!r} is not words of a-z, 0-9 joined by '.' or '-'")
        if self.sender == self.receiver:
            raise ValueError(f"{self.sender!r} is both sender and receiver")

    def stamp(self) -> Stamp:
        """The attempt and the model that the message belongs to, as the message itself must say."""
        return Stamp(self.session, self.round, self.attempt, self.model_hash)

    def encode(self) -> bytes:
        """The bytes that travel, which decode_header reads."""
        parts = [_PREAMBLE.pack(MAGIC, self.version, self.suite)]
        parts.append(_COUNTERS.pack(self.round, self.attempt, self.sequence))
        for name in _PARTS:
            value = getattr(self, name)
            part = value.encode("ascii") if name in _TEXT_PARTS else value
            parts.append(bytes([len(part)]) + part)
        return b"".join(parts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the encoded header."""
        return hashlib.sha256(self.encode()).digest()


def decode_header(data: memoryview) -> tuple[Header, int]:
    """The header at the front of `data`, and where it ends."""
    version, suite = _decode_preamble(data)
    position = _PREAMBLE.size + _COUNTERS.size
    if len(data) < position:
        raise WireError(WireDefect.TRUNCATED, "header ends in its counters")
    round_, attempt, sequence = _COUNTERS.unpack_from(data, _PREAMBLE.size)
    parts: dict[str, bytes | str] = {}
    for name in _PARTS:
        part, position = _read_part(data, position, name)
        parts[name] = _decode_text(part, name) if name in _TEXT_PARTS else part
    counters = {"round": round_, "attempt": attempt, "sequence": sequence}
    try:
        header = Header(version=version, suite=suite, **counters, **parts)  # type: ignore[arg-type]  # checked inside
    except InvalidField as problem:
        raise WireError(problem.defect, str(problem)) from None
    return header, position


def require_our_version(version: int) -> None:
    if version != PROTOCOL_VERSION:
        raise WireError(WireDefect.WRONG_VERSION, f"theirs is {version}, ours is {PROTOCOL_VERSION}")


def require_our_suite(suite: int) -> None:
    if suite != SUITE:
        raise WireError(WireDefect.WRONG_SUITE, f"theirs is {suite}, ours is {SUITE}")


def _decode_preamble(data: memoryview) -> tuple[int, int]:
    if bytes(data[: len(MAGIC)]) != MAGIC[: len(data)] or not data:
        raise WireError(WireDefect.NOT_AN_ENVELOPE, f"expected {MAGIC!r}")
    if len(data) < _PREAMBLE.size:
        raise WireError(WireDefect.TRUNCATED, "header ends before its version")
    _, version, suite = _PREAMBLE.unpack_from(data)
    require_our_version(version)
    require_our_suite(suite)
    return version, suite


def _read_part(data: memoryview, position: int, name: str) -> tuple[bytes, int]:
    start = position + 1
    end = start + data[position] if position < len(data) else start
    if len(data) < end:
        raise WireError(WireDefect.TRUNCATED, f"header ends in {name}")
    return bytes(data[start:end]), end


def _decode_text(part: bytes, name: str) -> str:
    try:
        return part.decode("ascii")
    except UnicodeDecodeError:
        raise WireError(WireDefect.BAD_TEXT, f"header {name} is not ASCII") from None
