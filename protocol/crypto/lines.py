"""The keys of a line: one handshake between two identities, and boxes in both directions until it ends.

    open     A -> B   nA EA     signature of A over (federation, A, B, nA, EA)
    accept   B -> A   nA nB EB  signature of B over th
    confirm  A -> B   the first box of the line, with the signature of A over th inside

    th = SHA-256(federation, A, B, nA, EA, nB, EB); both keys and the line's id come from X25519(EA, EB) and th

A nonce n and an X25519 key E are fresh for every handshake, and the private half is gone as soon as the keys are
derived. So no line is ever made twice, whatever is recorded and replayed, and a counter that starts at zero with the
line cannot meet its key again: no key and nonce twice, by construction, with nothing on disk.

Both signatures that make a line cover both names, both keys and both nonces. A reflected or redirected handshake does
not verify, nobody can claim the share of another's line, a stolen key of A lets nobody pose as B towards A, and an old
`open` is of no use even to somebody who learnt its E, for `confirm` signs what B has just drawn. Recordings stay
closed when an identity key is stolen later.

Rejected: a key for each start of a process, as protocol version 1 had. Its lines were a function of the two starts, so
one that was forgotten and made again had its old keys, and its counter at zero.

Implements specs/keys.md, section 11.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from veilsum.protocol.crypto.aead import NONCE_BYTES, BoxCipher
from veilsum.protocol.crypto.agreement import PUBLIC_KEY_BYTES, AgreementKey
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.kdf import hkdf_sha256
from veilsum.protocol.crypto.secret import Secret, equal_in_constant_time
from veilsum.protocol.crypto.signing import SIGNATURE_BYTES, SigningKey, verify_signature
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.randomness import RandomBytes, require_random

HANDSHAKE_NONCE_BYTES = 16
LINE_ID_BYTES = 16
BOXES_OF_A_LINE = 2**32

OPEN_DOMAIN, ACCEPT_DOMAIN, CONFIRM_DOMAIN = "line-open", "line-accept", "line-confirm"

_SHARE_BYTES = HANDSHAKE_NONCE_BYTES + PUBLIC_KEY_BYTES
_OPEN_BYTES = _SHARE_BYTES + SIGNATURE_BYTES
_ACCEPT_BYTES = HANDSHAKE_NONCE_BYTES + _SHARE_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True, slots=True)
class LineEnds:
    """Between whom a line is: the federation, who opens it and sends chunks, and who accepts and acknowledges."""

    federation: bytes
    opener: PartyId
    accepter: PartyId

    def __post_init__(self) -> None:
        if self.opener == self.accepter:
            raise LocalProtocolError(f"a line joins two parties, not {self.opener} with itself")

    def open_digest(self, share: bytes) -> bytes:
        """What `open` signs; a share is the nonce and key of one end."""
        return self._digest(domain_tag(OPEN_DOMAIN), share)

    def transcript(self, opener_share: bytes, accepter_share: bytes) -> bytes:
        return self._digest(domain_tag("line"), opener_share, accepter_share)

    def _digest(self, tag: bytes, *shares: bytes) -> bytes:
        parts = [
            part
            for share in shares
            for part in (share[:HANDSHAKE_NONCE_BYTES], share[HANDSHAKE_NONCE_BYTES:])
        ]
        names = (self.opener.encode(), self.accepter.encode())
        return hashlib.sha256(length_prefixed(tag, self.federation, *names, *parts)).digest()


class LineKeys:
    """One end's two keys of a line, and its id. A number is sealed once; the order of opening is free."""

    __slots__ = ("_incoming", "_lowest_free", "_outgoing", "id")

    def __init__(self, secret: Secret, transcript: bytes, us: PartyId, them: PartyId) -> None:
        def expand(label: str, *names: PartyId) -> bytes:
            info = length_prefixed(domain_tag(label), *(name.encode() for name in names))
            return hkdf_sha256(secret.reveal(), salt=transcript, info=info)

        self.id = expand("line-id")[:LINE_ID_BYTES]
        self._outgoing = BoxCipher(Secret(expand("line-key", us, them)))
        self._incoming = BoxCipher(Secret(expand("line-key", them, us)))
        self._lowest_free = 0

    def seal(self, number: int, plaintext: bytes, associated: bytes) -> bytes:
        """Encrypt box `number`; numbers only grow, and gaps are allowed."""
        nonce = _nonce(number)
        if number < self._lowest_free:
            raise LocalProtocolError(f"box {number} of this line is spent: use {self._lowest_free} or more")
        self._lowest_free = number + 1
        return self._outgoing.seal(nonce, plaintext, associated)

    def open(self, number: int, box: bytes, associated: bytes) -> bytes:
        """Decrypt box `number` of the other end."""
        return self._incoming.open(_nonce(number), box, associated)

    def __repr__(self) -> str:
        return f"<line {self.id.hex()[:16]}>"


class LineOpening:
    """Our `open`, waiting for its `accept`; the private key is dropped with the first one that verifies."""

    def __init__(self, ends: LineEnds, signing: SigningKey, random: RandomBytes) -> None:
        self._ends = ends
        self._signing = signing
        self._key: AgreementKey | None = AgreementKey.generate(random)
        self._share = require_random(random, HANDSHAKE_NONCE_BYTES) + self._key.public
        self.datagram = self._share + signing.sign(OPEN_DOMAIN, ends.open_digest(self._share))

    def accepted(self, accept: bytes, verify_key: bytes) -> tuple[LineKeys, bytes]:
        """The line, and our signature over its transcript, which goes into its first box."""
        if self._key is None:
            raise LocalProtocolError("this open was accepted before")
        if len(accept) != _ACCEPT_BYTES:
            raise Rejection(AbortReason.BAD_ENCODING, f"an accept has {_ACCEPT_BYTES} bytes")
        nonce, share, signature = _cut(accept, HANDSHAKE_NONCE_BYTES, _SHARE_BYTES)
        if not equal_in_constant_time(nonce, self._share[:HANDSHAKE_NONCE_BYTES]):
            raise Rejection(AbortReason.REPLAY, "this accepts another open")
        transcript = self._ends.transcript(self._share, share)
        verify_signature(verify_key, ACCEPT_DOMAIN, transcript, signature)
        secret = self._key.agree(share[HANDSHAKE_NONCE_BYTES:])
        self._key = None
        keys = LineKeys(secret, transcript, self._ends.opener, self._ends.accepter)
        return keys, self._signing.sign(CONFIRM_DOMAIN, transcript)


class LineAcceptance:
    """Our answer to an `open` that verified: the `accept`, and a line that waits for its `confirm`."""

    def __init__(
        self, ends: LineEnds, opening: bytes, verify_key: bytes, signing: SigningKey, random: RandomBytes
    ) -> None:
        if len(opening) != _OPEN_BYTES:
            raise Rejection(AbortReason.BAD_ENCODING, f"an open has {_OPEN_BYTES} bytes")
        their_share, signature = _cut(opening, _SHARE_BYTES)
        verify_signature(verify_key, OPEN_DOMAIN, ends.open_digest(their_share), signature)
        key = AgreementKey.generate(random)
        secret = key.agree(their_share[HANDSHAKE_NONCE_BYTES:])
        our_share = require_random(random, HANDSHAKE_NONCE_BYTES) + key.public
        self._transcript = ends.transcript(their_share, our_share)
        self._verify_key = verify_key
        self.keys = LineKeys(secret, self._transcript, ends.accepter, ends.opener)
        self.datagram = (
            their_share[:HANDSHAKE_NONCE_BYTES] + our_share + signing.sign(ACCEPT_DOMAIN, self._transcript)
        )

    def require_confirmation(self, signature: bytes) -> None:
        """Return only if the opener signed the transcript of this very line."""
        verify_signature(self._verify_key, CONFIRM_DOMAIN, self._transcript, signature)


def _cut(data: bytes, *lengths: int) -> list[bytes]:
    pieces, start = [], 0
    for length in (*lengths, len(data) - sum(lengths)):
        pieces.append(data[start : start + length])
        start += length
    return pieces


def _nonce(number: int) -> bytes:
    if not 0 <= number < BOXES_OF_A_LINE:
        raise LocalProtocolError(f"a line has {BOXES_OF_A_LINE} boxes in each direction, so none is {number}")
    return number.to_bytes(NONCE_BYTES, "big")
