"""X25519: two parties reach one secret over signed public keys.

`agree` returns HKDF of the curve's output and both public keys. The curve alone does not bind the keys:
adding a point of small order to a public key leaves the shared value as it was, so one secret would have
several keys. Hashing both keys in gives every pair of keys a secret of its own.

Refused, with the reason in the error:

* wrong length;
* non-canonical encodings (top bit set, or a value not below the field prime): aliases under which a key
  would pass the reflection and duplicate checks. RFC 7748 lets receivers accept them; honest keys never
  look so;
* low order: the shared value would be zero whatever our private key is;
* our own key reflected: we would agree with ourselves and take whoever sent it for another party.

Implements specs/keys.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilsum.protocol.crypto.domains import domain_tag
from veilsum.protocol.crypto.kdf import hkdf_sha256
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.randomness import RandomBytes, require_random

PRIVATE_KEY_BYTES = 32
PUBLIC_KEY_BYTES = 32

_FIELD_PRIME = 2**255 - 19
# The u-coordinates of order 1, 2, 4 and 8 on the curve and its twist, in their canonical encoding.
_LOW_ORDER = frozenset(
    {
        0,
        1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
        _FIELD_PRIME - 1,
    }
)
_SALT = domain_tag("agreement")


class AgreementKey:
    """An X25519 private key; printing it shows the public half only."""

    __slots__ = ("_key", "private", "public")

    def __init__(self, private: Secret) -> None:
        if len(private) != PRIVATE_KEY_BYTES:
            raise LocalProtocolError(f"an agreement key is {PRIVATE_KEY_BYTES} bytes, not {len(private)}")
        self._key = X25519PrivateKey.from_private_bytes(private.reveal())
        self.private = private
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, random: RandomBytes) -> AgreementKey:
        return cls(Secret(require_random(random, PRIVATE_KEY_BYTES)))

    @classmethod
    def from_private(cls, private: Secret) -> AgreementKey:
        return cls(private)

    def agree(self, their_public: bytes) -> Secret:
        """The 32-byte secret that only the holders of the two private keys can compute."""
        require_agreement_key(their_public)
        if their_public == self.public:
            raise Rejection(AbortReason.BAD_KEY, "agreement key is our own, reflected")
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(their_public))
        except ValueError:
            raise Rejection(AbortReason.BAD_KEY, "agreement key has low order") from None
        both_keys = b"".join(sorted((self.public, their_public)))
        return Secret(hkdf_sha256(shared, salt=_SALT, info=both_keys))

    def __repr__(self) -> str:
        return f"<agreement key, public {self.public.hex()[:16]}>"


def require_agreement_key(public: bytes) -> None:
    """Refuse a public key of the wrong length, in a non-canonical encoding or of low order.

    Whoever passes keys on calls this first: a key that only fails at `agree` stops everyone who meets it.
    """
    if len(public) != PUBLIC_KEY_BYTES:
        raise Rejection(
            AbortReason.BAD_KEY, f"an agreement key is {PUBLIC_KEY_BYTES} bytes, not {len(public)}"
        )
    point = int.from_bytes(public, "little")
    if point >= _FIELD_PRIME:
        raise Rejection(AbortReason.BAD_KEY, "agreement key is not canonically encoded")
    if point in _LOW_ORDER:
        raise Rejection(AbortReason.BAD_KEY, "agreement key has low order")


def require_new_key(owner: PartyId, public: bytes, known: Iterable[tuple[PartyId, bytes]]) -> None:
    """Refuse a key that another party has presented before."""
    for other, key in known:
        if key == public and other != owner:
            raise Rejection(AbortReason.BAD_KEY, f"{other} has presented the same key")


def require_distinct_keys(keys: Mapping[PartyId, bytes]) -> None:
    """Refuse a set of keys in which two parties present the same one; both are named."""
    first_owner: dict[bytes, PartyId] = {}
    for party in sorted(keys):
        owner = first_owner.setdefault(keys[party], party)
        if owner != party:
            raise Rejection(AbortReason.BAD_KEY, f"{owner} and {party} present the same key")
