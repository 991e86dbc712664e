"""Ed25519 signatures over digests.

What is signed is always a domain tag with the protocol version and a SHA-256 digest, never the megabytes
behind it: whoever verifies has hashed the content anyway, and a signature made for one domain (a roster, an
envelope, a survivor list) is worthless in every other.

Public keys are held to more than the library asks for. A point of small order would verify one signature
for every message, so its owner could deny what it signed; an encoding outside the field's range would give
one key two names. Both are refused, by value, before the key is used. A string that is no curve point at
all needs no rule of its own: no signature verifies under it.

Implements specs/keys.md, section 5.
"""

from __future__ import annotations

import functools
import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from veilsum.protocol.crypto.domains import DIGEST_BYTES, domain_tag, length_prefixed
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.randomness import RandomBytes, require_random

PRIVATE_KEY_BYTES = 32
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_FIELD_PRIME = 2**255 - 19
_SIGN_BIT = 2**255
_DOMAIN = re.compile(r"[a-z][a-z0-9-]{0,63}")
_ORDER_EIGHT_Y = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
# The y coordinates of the eight points whose order divides eight (the group's cofactor).
_SMALL_ORDER_Y = frozenset({0, 1, _FIELD_PRIME - 1, _ORDER_EIGHT_Y, _FIELD_PRIME - _ORDER_EIGHT_Y})


class SigningKey:
    """An Ed25519 private key; printing it shows the public half only."""

    __slots__ = ("_key", "private", "public")

    def __init__(self, private: Secret) -> None:
        if len(private) != PRIVATE_KEY_BYTES:
            raise LocalProtocolError(f"a signing key is {PRIVATE_KEY_BYTES} bytes, not {len(private)}")
        self._key = Ed25519PrivateKey.from_private_bytes(private.reveal())
        self.private = private
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, random: RandomBytes) -> SigningKey:
        return cls(Secret(require_random(random, PRIVATE_KEY_BYTES)))

    @classmethod
    def from_private(cls, private: Secret) -> SigningKey:
        return cls(private)

    def sign(self, domain: str, digest: bytes) -> bytes:
        return self._key.sign(_signed_bytes(domain, digest))

    def __repr__(self) -> str:
        return f"<signing key, public {self.public.hex()[:16]}>"


def verify_signature(public: bytes, domain: str, digest: bytes, signature: bytes) -> None:
    """Return only if the key signed this digest in this domain; otherwise raise `Rejection`."""
    message = _signed_bytes(domain, digest)
    key = _parse_verify_key(public)
    if len(signature) != SIGNATURE_BYTES:
        raise Rejection(
            AbortReason.BAD_SIGNATURE, f"a signature is {SIGNATURE_BYTES} bytes, not {len(signature)}"
        )
    try:
        key.verify(signature, message)
    except InvalidSignature:
        raise Rejection(AbortReason.BAD_SIGNATURE, f"domain {domain!r}") from None


def require_verify_key(public: bytes) -> None:
    """Refuse a verification key of the wrong length, out of the field's range, or of small order."""
    _parse_verify_key(public)


@functools.lru_cache(maxsize=4096)
def _parse_verify_key(public: bytes) -> Ed25519PublicKey:
    if len(public) != PUBLIC_KEY_BYTES:
        raise Rejection(
            AbortReason.BAD_KEY, f"a verification key is {PUBLIC_KEY_BYTES} bytes, not {len(public)}"
        )
    y = int.from_bytes(public, "little") % _SIGN_BIT
    if y >= _FIELD_PRIME:
        raise Rejection(AbortReason.BAD_KEY, "verification key is not canonically encoded")
    if y in _SMALL_ORDER_Y:
        raise Rejection(AbortReason.BAD_KEY, "verification key has small order")
    return Ed25519PublicKey.from_public_bytes(public)


def _signed_bytes(domain: str, digest: bytes) -> bytes:
    if len(digest) != DIGEST_BYTES:
        raise LocalProtocolError(f"signatures cover {DIGEST_BYTES}-byte digests, not {len(digest)} bytes")
    return _domain_prefix(domain) + digest


@functools.lru_cache(maxsize=256)
def _domain_prefix(domain: str) -> bytes:
    if not _DOMAIN.fullmatch(domain):
        raise LocalProtocolError(f"{domain!r} is not a signature domain (a-z, 0-9, '-', at most 64)")
    return length_prefixed(domain_tag(f"signature/{domain}"))
