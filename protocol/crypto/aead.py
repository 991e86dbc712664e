"""The one place where AES-256-GCM is called: every box of the package is sealed and opened here.

GCM is lost when one key meets one nonce with two messages: both plaintexts leak into each other, and the key of its
authentication follows. Boxes of one use (boxes.py) and lines (lines.py) each make that impossible by construction,
and `watch_seals` is how tests and simulations see for themselves that it does not happen (invariant I9 of
specs/testing.md): whoever watches is told of every key and nonce before anything is encrypted under them.

Implements specs/keys.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilsum.protocol.crypto.kdf import KEY_BYTES
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection

NONCE_BYTES = 12
TAG_BYTES = 16

SealWatcher: TypeAlias = Callable[[Secret, bytes], None]
"""Is told of the key and nonce of each box before it is sealed, and may raise to prevent it."""

_watchers: list[SealWatcher] = []


@contextmanager
def watch_seals(watcher: SealWatcher) -> Iterator[None]:
    """Tell `watcher` of everything that is sealed in this process until the end of the block."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


class BoxCipher:
    """AES-256-GCM under one key."""

    __slots__ = ("_cipher", "_key")

    def __init__(self, key: Secret) -> None:
        if len(key) != KEY_BYTES:
            raise LocalProtocolError(f"a box key is {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._cipher = AESGCM(key.reveal())

    def seal(self, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
        """The ciphertext with its tag, `TAG_BYTES` longer than the input; no nonce is the caller's to use twice."""
        for watcher in _watchers:
            watcher(self._key, nonce)
        return self._cipher.encrypt(nonce, plaintext, associated)

    def open(self, nonce: bytes, box: bytes, associated: bytes) -> bytes:
        """What was sealed; raise `Rejection` unless key, nonce, content and associated data are the same."""
        if len(box) < TAG_BYTES:
            raise Rejection(AbortReason.BAD_SEAL, f"a box has at least {TAG_BYTES} bytes, not {len(box)}")
        try:
            return self._cipher.decrypt(nonce, box, associated)
        except InvalidTag:
            raise Rejection(
                AbortReason.BAD_SEAL, "key, content or associated data differ from what was sealed"
            ) from None
