"""RSA-OAEP: a few secret bytes sealed to a party that is not there to agree on a key.

Suite: RSA-3072 or longer, OAEP with SHA-256 for both the hash and MGF1 (RFC 8017 section 7.1), and as OAEP label
a hash of what the ciphertext is for, so that it opens for nothing else. OAEP authenticates nobody: its sender signs
every ciphertext with its label.

pycryptodome does the work because its OAEP takes the randomness as an argument, which the other library's
does not; with a fixed source the ciphertext is fixed, and vectors can pin it. The blinding factors of the
private operation come from that library's own generator. They defend against timing and cancel in the
result, so opening is still a function of its arguments.

Simulations share a small pool of keys among many parties. Such keys carry the public exponent 65539 instead
of 65537 (both are prime): the mark is part of the key itself, survives every copy and conversion, and
cannot be stripped without making another key. Real roles call `require_real`. Rejected: a flag beside the
key, which gets lost, and a smaller modulus, which would make simulated costs wrong.

Implements specs/keys.md, section 8.
"""

from __future__ import annotations

import functools

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA256
from Crypto.PublicKey import RSA

from veilsum.protocol.crypto.domains import DIGEST_BYTES
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.randomness import RandomBytes, require_random

MODULUS_BITS = 3072
REAL_EXPONENT = 65537
SIMULATION_EXPONENT = 65539

# A longer modulus buys nothing here and lets one roster entry cost every other party seconds.
_LARGEST_MODULUS_BITS = 4096
_OAEP_OVERHEAD = 2 * DIGEST_BYTES + 2


class RsaPublicKey:
    """A public key in one encoding only: DER SubjectPublicKeyInfo."""

    __slots__ = ("_key", "der")

    def __init__(self, key: RSA.RsaKey) -> None:
        _require_strong(key)
        self._key = key
        self.der: bytes = key.export_key("DER")

    @classmethod
    def from_der(cls, der: bytes) -> RsaPublicKey:
        return _parse_public(der)

    @property
    def simulation_only(self) -> bool:
        return int(self._key.e) == SIMULATION_EXPONENT

    def require_real(self) -> None:
        """Refuse a key of the simulation pool, whose private half is on every disk that ran a simulation."""
        if self.simulation_only:
            raise Rejection(
                AbortReason.BAD_KEY,
                f"RSA key is marked simulation-only (exponent {SIMULATION_EXPONENT}): make a real one",
            )

    @property
    def ciphertext_bytes(self) -> int:
        return int(self._key.size_in_bytes())

    @property
    def longest_plaintext(self) -> int:
        return self.ciphertext_bytes - _OAEP_OVERHEAD

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RsaPublicKey) and self.der == other.der

    def __hash__(self) -> int:
        return hash(self.der)

    def __repr__(self) -> str:
        mark = ", simulation only" if self.simulation_only else ""
        return f"<RSA public key {_short_name(self)}{mark}>"


class RsaPrivateKey:
    """A private key, read from unencrypted DER PKCS #8; printing it shows the public half only."""

    __slots__ = ("_key", "der", "public")

    def __init__(self, der: Secret) -> None:
        try:
            key = RSA.import_key(der.reveal())
        except (ValueError, IndexError, TypeError):
            raise LocalProtocolError("RSA private key does not decode") from None
        if not key.has_private() or key.export_key("DER", pkcs=8) != der.reveal():
            raise LocalProtocolError("RSA private key is not canonical unencrypted DER PKCS #8")
        if key.p * key.q != key.n or any(key.d * key.e % (prime - 1) != 1 for prime in (key.p, key.q)):
            raise LocalProtocolError("RSA private key is inconsistent: its numbers do not belong together")
        self._key = key
        self.der = der
        self.public = RsaPublicKey(key.public_key())

    @classmethod
    def from_der(cls, der: Secret) -> RsaPrivateKey:
        return cls(der)

    def __repr__(self) -> str:
        return f"<RSA private key of {self.public!r}>"


def seal(public: RsaPublicKey, plaintext: bytes, label: bytes, random: RandomBytes) -> bytes:
    """Encrypt to the holder of the private key, bound to `label`, a hash of what the secret is for."""
    if len(plaintext) > public.longest_plaintext:
        raise LocalProtocolError(
            f"{len(plaintext)} bytes do not fit: this key seals at most {public.longest_plaintext} at once"
        )
    sealed: bytes = _oaep(public._key, label, random).encrypt(plaintext)
    return sealed


def open_sealed(private: RsaPrivateKey, ciphertext: bytes, label: bytes) -> Secret:
    """Decrypt; one error for every cause, since telling them apart would be a decryption oracle."""
    try:
        return Secret(_oaep(private._key, label, _no_randomness).decrypt(ciphertext))
    except ValueError:
        raise Rejection(AbortReason.BAD_SEAL, "key, content or header differ from what was sealed") from None


def _oaep(key: RSA.RsaKey, label: bytes, random: RandomBytes) -> PKCS1_OAEP.PKCS1OAEP_Cipher:
    if len(label) != DIGEST_BYTES:
        raise LocalProtocolError(f"the label is a {DIGEST_BYTES}-byte header hash, not {len(label)} bytes")
    return PKCS1_OAEP.new(key, hashAlgo=SHA256, label=label, randfunc=lambda n: require_random(random, n))


def _no_randomness(n: int) -> bytes:
    raise LocalProtocolError(f"opening a seal asked for {n} random bytes, which it never needs")


def _require_strong(key: RSA.RsaKey) -> None:
    bits = key.size_in_bits()
    if not MODULUS_BITS <= bits <= _LARGEST_MODULUS_BITS:
        raise Rejection(
            AbortReason.BAD_KEY, f"RSA keys have {MODULUS_BITS} to {_LARGEST_MODULUS_BITS} bits, not {bits}"
        )
    if key.e not in (REAL_EXPONENT, SIMULATION_EXPONENT):
        raise Rejection(AbortReason.BAD_KEY, f"the RSA exponent must be {REAL_EXPONENT}, not {key.e}")
    if key.n % 2 == 0:
        raise Rejection(AbortReason.BAD_KEY, "RSA modulus is even")


@functools.lru_cache(maxsize=4096)
def _parse_public(der: bytes) -> RsaPublicKey:
    try:
        key = RSA.import_key(der)
    except (ValueError, IndexError, TypeError):
        raise Rejection(AbortReason.BAD_KEY, "RSA public key does not decode") from None
    if key.has_private():
        raise Rejection(AbortReason.BAD_KEY, "an RSA private key was presented as a public one")
    public = RsaPublicKey(key)
    if public.der != der:
        raise Rejection(AbortReason.BAD_KEY, "RSA public key is not canonical DER SubjectPublicKeyInfo")
    return public


def _short_name(public: RsaPublicKey) -> str:
    return SHA256.new(public.der).hexdigest()[:16]
