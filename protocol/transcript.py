"""A running hash of everything a session agreed on, in order.

Each step hashes the digest so far together with a labelled piece of data, so one 32-byte value stands for
the whole history: two parties with equal digests saw the same pieces under the same labels in the same
order. A `Transcript` is a value; absorbing returns a new one, so a refused message leaves the old one
untouched.

Rejected: a mutable hash object that is fed and never finished. It cannot be compared, stored or rolled back
at a step boundary, and it would make the state machines' "a refused message changes nothing" a promise
instead of a fact.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed

_START = domain_tag("transcript/start")
_ABSORB = domain_tag("transcript/absorb")


@dataclass(frozen=True, slots=True)
class Transcript:
    digest: bytes

    @classmethod
    def start(cls, label: str) -> Transcript:
        return cls(hashlib.sha256(length_prefixed(_START, label.encode())).digest())

    def absorb(self, label: str, data: bytes) -> Transcript:
        """The transcript after one more piece; pass the digest of anything large."""
        framed = length_prefixed(_ABSORB, self.digest, label.encode(), data)
        return Transcript(hashlib.sha256(framed).digest())

    def __repr__(self) -> str:
        return f"<transcript {self.digest.hex()[:16]}>"
