"""Mask streams: a 32-byte key becomes as many uniform ring words as a vector has, added on the fly.

The stream of a key is AES-256 in counter mode from a zero counter, read as little-endian words. It is fused
with the addition in blocks that stay in the cache, so that masking a vector needs no second vector: with
several keys every block of the vector is loaded once and meets all the streams while it is there.

One derived key covers one vector, ever (see kdf.py for what a key is bound to). The block size is a matter of
speed only: the stream does not depend on it. Rejected: numpy generators (not meant to resist anyone), SHAKE
and ChaCha20 (slower than AES where the processor has instructions for it).

Implements specs/keys.md, section 4, and specs/numbers.md, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.numbers.ring import Ring

STREAM_KEY_BYTES = 32
BLOCK_BYTES = 1 << 20

_ZERO_COUNTER = bytes(16)
_ZEROS = bytes(BLOCK_BYTES)
_CIPHER_SLACK = 15


def apply_masks(
    ring: Ring, target: Any, *, add: Sequence[Secret] = (), subtract: Sequence[Secret] = ()
) -> None:
    """Add and subtract the streams of the keys, in place, on any writable contiguous buffer of ring words."""
    words = ring.words_of(target)
    streams = [(_keystream(key), np.add) for key in add] + [
        (_keystream(key), np.subtract) for key in subtract
    ]
    block_bytes = min(BLOCK_BYTES, words.nbytes)
    buffer = bytearray(block_bytes + _CIPHER_SLACK)
    mask = np.frombuffer(buffer, dtype=ring.dtype, count=block_bytes // ring.word_bytes)
    zeros = memoryview(_ZEROS)
    for start in range(0, len(words), len(mask) or 1):
        block = words[start : start + len(mask)]
        for stream, combine in streams:
            stream.update_into(zeros[: block.nbytes], buffer)
            combine(block, mask[: len(block)], out=block)


def _keystream(key: Secret) -> Any:
    if len(key) != STREAM_KEY_BYTES:
        raise LocalProtocolError(
            f"a mask key is {STREAM_KEY_BYTES} bytes, got {len(key)}: derive it with derive_key"
        )
    return Cipher(AES(key.reveal()), CTR(_ZERO_COUNTER)).encryptor()
