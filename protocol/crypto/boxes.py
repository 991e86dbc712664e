"""Authenticated encryption of one box under one key: AES-256-GCM.

The key is derived for this box and never used again. The nonce is fixed at zero, and that is sound: GCM breaks when
one key meets one nonce with two different messages, and a key from `derive_key` covers one box ever, because session,
round, attempt, parties and purpose are all inside it. A random nonce would add nothing except bytes and a call for
entropy. Many boxes between the same two parties travel over a line (lines.py).

Implements specs/keys.md, section 7.
"""

from __future__ import annotations

from veilsum.protocol.crypto.aead import NONCE_BYTES, BoxCipher
from veilsum.protocol.crypto.secret import Secret

_ONE_USE_NONCE = bytes(NONCE_BYTES)


def seal_box(key: Secret, plaintext: bytes, associated: bytes) -> bytes:
    """Encrypt under a key that is used for this box only; the result is 16 bytes longer than the input."""
    return BoxCipher(key).seal(_ONE_USE_NONCE, plaintext, associated)


def open_box(key: Secret, box: bytes, associated: bytes) -> bytes:
    """Decrypt a box of `seal_box`; raise `Rejection` unless key, content and associated data are the same."""
    return BoxCipher(key).open(_ONE_USE_NONCE, box, associated)
