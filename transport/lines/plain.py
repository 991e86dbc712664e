"""The stand-in for cryptography where nobody attacks: handshakes in form, and seals against damage only.

`transport/` does not know what a signature or a key is. Whoever makes a transport hands in a `LineCrypto`: role
processes one with the identities of their roster (roles/process/channels.py), simulations and tests this one.

Implements specs/transport.md, section 5.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from veilsum.transport.lines.datagrams import LINE_BYTES

if TYPE_CHECKING:
    from veilsum.transport.base import Acceptance, Address, Buffer, LineSeal, Opening

_NONCE_BYTES = 16
_CHECKSUM_BYTES = 16


class _Checksums:
    """A line whose seal is a checksum over number, header and data."""

    def __init__(self, line: bytes) -> None:
        self.id = line

    def seal(self, number: int, data: Buffer, header: bytes) -> bytes:
        return b"".join((data, self._checksum(number, data, header)))

    def open(self, number: int, sealed: Buffer, header: bytes) -> memoryview | None:
        view = memoryview(sealed)
        data, checksum = view[:-_CHECKSUM_BYTES], view[-_CHECKSUM_BYTES:]
        return data if hmac.compare_digest(checksum, self._checksum(number, data, header)) else None

    def _checksum(self, number: int, data: Buffer, header: bytes) -> bytes:
        digest = hashlib.sha256(self.id + number.to_bytes(8, "big") + header)
        digest.update(data)
        return digest.digest()[:_CHECKSUM_BYTES]


class _PlainOpening:
    def __init__(self, opener: Address, accepter: Address, nonce: bytes) -> None:
        self._ends = opener, accepter
        self._nonce = nonce
        self.body = nonce + _short_hash(opener, accepter, nonce)

    def accepted(self, body: bytes) -> tuple[LineSeal, bytes] | None:
        line = _short_hash(*self._ends, self._nonce + body[:_NONCE_BYTES])
        return (_Checksums(line), line) if body == body[:_NONCE_BYTES] + line else None


class _PlainAcceptance:
    def __init__(self, opener: Address, accepter: Address, theirs: bytes, ours: bytes) -> None:
        line = _short_hash(opener, accepter, theirs + ours)
        self.seal: LineSeal = _Checksums(line)
        self.body = ours + line

    def is_confirmed_by(self, content: Buffer) -> bool:
        return content == self.seal.id


class PlainCrypto:
    """Handshakes and seals against damage only, for links that nobody attacks: simulations and tests.

    `life` is fresh with each start of the party, and all nonces come from it.
    """

    def __init__(self, address: Address, life: bytes) -> None:
        self._address = address
        self._life = life
        self._drawn = 0

    def knows(self, address: Address) -> bool:
        return address != self._address

    def open_line(self, receiver: Address) -> Opening:
        return _PlainOpening(self._address, receiver, self._nonce())

    def accept_line(self, sender: Address, body: bytes) -> Acceptance | None:
        nonce, check = body[:_NONCE_BYTES], body[_NONCE_BYTES:]
        if check != _short_hash(sender, self._address, nonce):
            return None
        return _PlainAcceptance(sender, self._address, nonce, self._nonce())

    def _nonce(self) -> bytes:
        self._drawn += 1
        return hashlib.sha256(self._life + self._drawn.to_bytes(8, "big")).digest()[:_NONCE_BYTES]


def _short_hash(opener: Address, accepter: Address, data: bytes) -> bytes:
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in (opener, accepter))
    return hashlib.sha256(names + data).digest()[:LINE_BYTES]
