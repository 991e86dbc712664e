"""Authenticated encryption between two parties: AES-256-GCM.

`seal_box` and `open_box` are for keys that are derived for one box and never used again. The nonce is fixed
at zero, and that is sound: GCM breaks when one key meets one nonce with two different messages, and a key
from `derive_key` covers one box ever, because session, round, attempt, parties and purpose are all inside
it. A random nonce would add nothing except bytes and a call for entropy.

A `Channel` is for many messages between the same two parties. Each direction has a key of its own, derived
with the sender's name first, so a box reflected to its sender does not open and the two counters may
coincide. The nonce is the sequence number, which travels in the message header; boxes therefore open after
losses and in any order. A sequence number is sealed once: what must be sent again is stored and sent again
byte for byte. Detecting replays and two messages under one number is the business of the layer that keeps
that state.

Implements specs/keys.md, section 7.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilsum.protocol.crypto.kdf import KEY_BYTES, KeyContext, Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId

NONCE_BYTES = 12
TAG_BYTES = 16

_ONE_USE_NONCE = bytes(NONCE_BYTES)
_SEQUENCES = 2**64


def seal_box(key: Secret, plaintext: bytes, associated: bytes) -> bytes:
    """Encrypt under a key that is used for this box only; the result is `TAG_BYTES` longer than the input."""
    return _cipher(key).encrypt(_ONE_USE_NONCE, plaintext, associated)


def open_box(key: Secret, box: bytes, associated: bytes) -> bytes:
    """Decrypt a box of `seal_box`; raise `Rejection` unless key, content and associated data are the same."""
    return _decrypt(_cipher(key), _ONE_USE_NONCE, box, associated)


class Channel:
    """Two directional keys between `us` and `them`, for many boxes in one session."""

    __slots__ = ("_incoming", "_lowest_free", "_outgoing", "them", "us")

    def __init__(self, shared: Secret, session: bytes, us: PartyId, them: PartyId) -> None:
        if us == them:
            raise LocalProtocolError(f"a channel joins two parties, not {us} with itself")
        self.us = us
        self.them = them
        self._outgoing = _direction(shared, session, us, them)
        self._incoming = _direction(shared, session, them, us)
        self._lowest_free = 0

    def seal(self, sequence: int, plaintext: bytes, associated: bytes) -> bytes:
        """Encrypt message number `sequence`; numbers only grow, and gaps are allowed."""
        nonce = _nonce(sequence)
        if sequence < self._lowest_free:
            raise LocalProtocolError(
                f"sequence {sequence} to {self.them} is spent: send the stored box again, or use "
                f"{self._lowest_free} or more"
            )
        self._lowest_free = sequence + 1
        return self._outgoing.encrypt(nonce, plaintext, associated)

    def open(self, sequence: int, box: bytes, associated: bytes) -> bytes:
        """Decrypt message number `sequence` of the other side, in any order."""
        return _decrypt(self._incoming, _nonce(sequence), box, associated)

    def __repr__(self) -> str:
        return f"<channel {self.us} to {self.them}>"


def _direction(shared: Secret, session: bytes, sender: PartyId, receiver: PartyId) -> AESGCM:
    context = KeyContext(session=session, round=0, attempt=0, sender=sender, receiver=receiver)
    return _cipher(derive_key(shared, Purpose.CHANNEL, context))


def _cipher(key: Secret) -> AESGCM:
    if len(key) != KEY_BYTES:
        raise LocalProtocolError(f"a box key is {KEY_BYTES} bytes, not {len(key)}")
    return AESGCM(key.reveal())


def _nonce(sequence: int) -> bytes:
    if not 0 <= sequence < _SEQUENCES:
        raise LocalProtocolError(f"a sequence number has 64 bits, not {sequence}")
    return sequence.to_bytes(NONCE_BYTES, "big")


def _decrypt(cipher: AESGCM, nonce: bytes, box: bytes, associated: bytes) -> bytes:
    if len(box) < TAG_BYTES:
        raise Rejection(AbortReason.BAD_SEAL, f"a box has at least {TAG_BYTES} bytes, not {len(box)}")
    try:
        return cipher.decrypt(nonce, box, associated)
    except InvalidTag:
        raise Rejection(
            AbortReason.BAD_SEAL, "key, content or associated data differ from what was sealed"
        ) from None
