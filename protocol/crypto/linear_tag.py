"""Poly1305 as a one-time authenticator of sums: whoever adds the messages cannot change the sum unseen.

Poly1305 (RFC 8439) reads a message as blocks c_1 .. c_q of 16 bytes, each with a 1 behind its last byte, and gives

    tag = ((c_1 r^q + c_2 r^(q-1) + .. + c_q r  mod p) + s) mod 2^128,        p = 2^130 - 5

It is linear in the blocks but for those 1s, which are the same for all messages of one length: C, the value of a
message of zeros, gathers them. Let K messages have one r and a pad s_k each, and let their sum X, word by word, not
wrap. With h_k and H the values mod p of the messages and of X,

    h_1 + .. + h_K  =  H + (K-1) C - m p,        |m| <= K-1

because both h_1 + .. + h_K and H + (K-1) C lie in 0 .. K (p-1). Modulo 2^128 p is -5, so the sum of all tags, minus
all pads, minus H, minus (K-1) C, is 5 m. Both ends, m = K-1 and m = 1-K, are reached; anything else is a lie. The
server knows neither r nor a pad. Every tag has a uniform pad of its own, so tags tell nothing about r, not even one by
one; a changed sum passes with probability at most 8 (4K-3) ceil(bytes/16) / 2^106.

**One (r, s_k) covers one message, ever.** Two messages under one pad give r away, and r forges every sum. So the
attempt key is bound to session, round, attempt and model, and a pad to a party's place in the sorted session. The
survivors are not known when a tag is made, hence a pad per party and not one per sum. All tags of the package are made
in `LinearTags.tag`, and `watch_tags` is how tests and simulations see for themselves that no key covers two messages
(invariant I10 of specs/testing.md): whoever watches is told of every tag and the key that it was made under.

C is a geometric sum in closed form: hashing a second vector of zeros would double the cost of a check.

Rejected: a check sum of random coefficients (a second vector as long as the first), commitments in a group (a
thousand times slower), tags with a common pad (a sum of K tags would then need K known when the first is made).

Implements specs/protocol.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.poly1305 import Poly1305

from veilsum.protocol.crypto.domains import domain_tag
from veilsum.protocol.crypto.kdf import KEY_BYTES, KeyContext, Purpose, derive_key, hkdf_sha256
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection

TAG_BYTES = 16

_MODULUS = (1 << 130) - 5
_TAGS = 1 << 128
_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
_ZERO_BLOCK = bytes(TAG_BYTES)
_FIRST_PADS = 64
_SALT = domain_tag("sum-tag")

TagWatcher: TypeAlias = Callable[[Secret, bytes], None]
"""Is told of each tag, behind the key that it was made under: r, and the pad of its place."""

_watchers: list[TagWatcher] = []


@contextmanager
def watch_tags(watcher: TagWatcher) -> Iterator[None]:
    """Tell `watcher` of every tag that is made in this process until the end of the block."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def group_key_id(group_key: Secret) -> bytes:
    """What members show each other to see that they hold one group key; it says nothing about the key."""
    return _expand(group_key, b"id")


def attempt_key(group_key: Secret, context: KeyContext) -> Secret:
    """The key of all tags of one attempt; it can be kept when the group key is gone, and suffices for a check."""
    return derive_key(group_key, Purpose.SUM_TAG, context)


class LinearTags:
    """The tags of one attempt, made and checked from its attempt key; places count the sorted session from 0."""

    __slots__ = ("_made", "_pad_key", "_r")

    def __init__(self, key: Secret) -> None:
        self._r = _expand(key, b"r")[:TAG_BYTES]
        self._pad_key = _expand(key, b"s")
        self._made = b""

    def __repr__(self) -> str:
        return "<linear tags of one attempt>"

    def tag(self, place: int, message: Iterable[Any]) -> bytes:
        """The tag of the message, given as consecutive buffers, each read before the next one is asked for."""
        key = self._r + self._pad(place)
        tag = _poly1305(key, message)
        for watcher in _watchers:
            watcher(Secret(key), tag)
        return tag

    def require_sum(self, tags: int, total: Iterable[Any], length: int, places: Collection[int]) -> None:
        """Refuse a sum of `length` bytes that is not the sum of the messages tagged at `places`.

        `tags` is the sum of their tags, read as little-endian integers; what it has beyond 128 bits does not count.
        """
        parties = len(places)
        if parties < 1 or len(set(places)) != parties or min(places) < 0:
            raise LocalProtocolError(
                f"a sum has one or more tags, each from a place of its own, not {places}"
            )
        padding = sum(_number(self._pad(place)) for place in places)
        opened = _number(_poly1305(self._r + _ZERO_BLOCK, total))
        constant = value_of_zeros(self._r, length)
        rest = (tags - padding - opened - (parties - 1) * constant) % _TAGS
        multiple, remainder = divmod(rest if rest < _TAGS // 2 else rest - _TAGS, 5)
        if remainder or abs(multiple) >= parties:
            raise Rejection(
                AbortReason.SUM_FALSIFIED,
                f"the sum is not what its {parties} parties tagged, in this session, round, attempt and model",
            )

    def _pad(self, place: int) -> bytes:
        """One block of the stream; what is made of it is kept, since who tags also checks."""
        if len(self._made) < TAG_BYTES * (place + 1):
            stream = Cipher(AES(self._pad_key), CTR(_ZERO_BLOCK)).encryptor()
            self._made = stream.update(bytes(TAG_BYTES * max(2 * (place + 1), _FIRST_PADS)))
        return self._made[TAG_BYTES * place : TAG_BYTES * (place + 1)]


def value_of_zeros(r: bytes, length: int) -> int:
    """What Poly1305 makes of so many zero bytes before the pad is added, modulo p, without hashing them."""
    factor = _number(r) & _CLAMP
    whole, short = divmod(length, TAG_BYTES)
    powers = (
        whole if factor == 1 else factor * (pow(factor, whole, _MODULUS) - 1) * pow(factor - 1, -1, _MODULUS)
    )
    if not short:
        return _TAGS * powers % _MODULUS
    return (_TAGS * powers + (1 << (8 * short))) * factor % _MODULUS


def _poly1305(key: bytes, message: Iterable[Any]) -> bytes:
    state = Poly1305(key)
    for part in message:
        state.update(memoryview(part).cast("B"))
    return state.finalize()


def _number(little_endian: bytes) -> int:
    return int.from_bytes(little_endian, "little")


def _expand(key: Secret, use: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise LocalProtocolError(f"group keys and attempt keys are {KEY_BYTES} bytes, not {len(key)}")
    return hkdf_sha256(key.reveal(), salt=_SALT, info=use)
