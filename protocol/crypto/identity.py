"""Long-lived identities: who a party is to the others.

An identity is an Ed25519 key and, for parties that receive sealed seeds, an RSA key. Its public half is
what a roster lists and what people compare by fingerprint over the telephone. Keys that live for one round
(X25519 masking keys, seeds) are not part of it.

Implements specs/keys.md, section 9.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.sealing import RsaPrivateKey, RsaPublicKey
from veilsum.protocol.crypto.signing import SigningKey, require_verify_key
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId, require_party_id

_TAG = domain_tag("identity")
_FINGERPRINT_HEX_DIGITS = 32


class Role(enum.StrEnum):
    """What a party does. The organiser only signs rosters and is never the server."""

    SERVER = "server"
    CLIENT = "client"
    PEER = "peer"
    ORGANISER = "organiser"


@dataclass(frozen=True, slots=True, repr=False)
class PublicIdentity:
    """The public half of an identity; one that breaks a rule cannot be built."""

    name: PartyId
    role: Role
    verify_key: bytes
    rsa_public: bytes | None = None

    def __post_init__(self) -> None:
        require_party_id(self.name)
        try:
            object.__setattr__(self, "role", Role(self.role))
        except ValueError:
            raise Rejection(
                AbortReason.BAD_ENCODING, f"{self.name} has the unknown role {self.role!r}"
            ) from None
        try:
            require_verify_key(self.verify_key)
            if self.rsa_public is not None:
                RsaPublicKey.from_der(self.rsa_public)
        except Rejection as problem:
            raise Rejection(problem.reason, f"{self.name}: {problem.detail}") from None

    @property
    def rsa(self) -> RsaPublicKey | None:
        return None if self.rsa_public is None else RsaPublicKey.from_der(self.rsa_public)

    @property
    def digest(self) -> bytes:
        """SHA-256 over every field: equal digests mean equal identities."""
        rsa_public = b"" if self.rsa_public is None else self.rsa_public
        framed = length_prefixed(
            _TAG, self.name.encode(), self.role.value.encode(), self.verify_key, rsa_public
        )
        return hashlib.sha256(framed).digest()

    @property
    def fingerprint(self) -> str:
        """128 bits of the digest in groups of four digits, for people to compare."""
        digits = self.digest.hex()[:_FINGERPRINT_HEX_DIGITS]
        return "-".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def __repr__(self) -> str:
        return f"<{self.role.value} {self.name}, fingerprint {self.fingerprint}>"

    def require_real(self) -> None:
        """Refuse an identity whose RSA key comes from the simulation pool."""
        rsa = self.rsa
        if rsa is None:
            return
        try:
            rsa.require_real()
        except Rejection as problem:
            raise Rejection(problem.reason, f"{self.name}: {problem.detail}") from None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Identity:
    """A party's own keys."""

    name: PartyId
    role: Role
    signing: SigningKey
    rsa: RsaPrivateKey | None = None

    def __post_init__(self) -> None:
        _ = self.public

    @property
    def public(self) -> PublicIdentity:
        rsa_public = None if self.rsa is None else self.rsa.public.der
        return PublicIdentity(self.name, self.role, self.signing.public, rsa_public)

    @property
    def fingerprint(self) -> str:
        return self.public.fingerprint

    def __repr__(self) -> str:
        return f"<private keys of {self.public!r}>"
