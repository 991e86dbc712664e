"""Who may take part: names, roles and public keys, and where their chain of models begins, under one hash.

The roster is made and signed by an organiser, never by the server
(roles/federation/signed_roster.py). Here it is a value: a party that is not in it does not exist.

Implements specs/threat-model.md, section 5.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import PublicIdentity, Role
from veilsum.protocol.crypto.signing import verify_signature
from veilsum.protocol.errors import AbortReason, ParameterError, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId

_PARTICIPANTS = (Role.CLIENT, Role.PEER)


@dataclass(frozen=True)
class Roster:
    version: int
    identities: tuple[PublicIdentity, ...]
    anchor: Anchor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "identities", tuple(sorted(self.identities, key=lambda one: one.name)))
        problems = [*_roster_problems(self.identities), *_anchor_problems(self.identities, self.anchor)]
        if problems:
            raise ParameterError(problems)

    @cached_property
    def _by_name(self) -> dict[PartyId, PublicIdentity]:
        return {identity.name: identity for identity in self.identities}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over version, identities and anchor; each part is a hash under a tag of its own kind."""
        parts = [identity.digest for identity in self.identities]
        if self.anchor is not None:
            parts.append(self.anchor.digest)
        return hashlib.sha256(
            length_prefixed(domain_tag("roster"), self.version.to_bytes(8, "big"), *parts)
        ).digest()

    @cached_property
    def participants(self) -> tuple[PartyId, ...]:
        return tuple(one.name for one in self.identities if one.role in _PARTICIPANTS)

    def packed(self, chosen: Collection[PartyId]) -> bytes:
        """One bit for each participant, by name, the first one lowest: whether it is among the chosen."""
        bits = sum(1 << place for place, name in enumerate(self.participants) if name in chosen)
        return bits.to_bytes((len(self.participants) + 7) // 8, "little")

    def unpacked(self, packed: bytes) -> tuple[PartyId, ...]:
        """The participants that were chosen; bits for others than these are refused."""
        names, bits = self.participants, int.from_bytes(packed, "little")
        if len(packed) != (len(names) + 7) // 8 or bits >> len(names):
            raise Rejection(
                AbortReason.UNKNOWN_PARTY,
                f"{len(packed)} bytes of bits do not fit the {len(names)} participants",
            )
        return tuple(
            name for name, bit in zip(names, reversed(f"{bits:0{len(names)}b}"), strict=True) if bit == "1"
        )

    def identity(self, name: str) -> PublicIdentity:
        found = self._by_name.get(PartyId(name))
        if found is None:
            raise Rejection(AbortReason.UNKNOWN_PARTY, f"{name} is not in roster version {self.version}")
        return found

    def require_participant(self, name: str) -> PublicIdentity:
        found = self.identity(name)
        if found.role not in _PARTICIPANTS:
            raise Rejection(AbortReason.UNKNOWN_PARTY, f"{name} is a {found.role}, not a participant")
        return found

    def verify(self, name: str, domain: str, digest: bytes, signature: bytes) -> None:
        """Return only if the named party itself signed the digest."""
        verify_signature(self.identity(name).verify_key, domain, digest, signature)


def _roster_problems(identities: Iterable[PublicIdentity]) -> Iterable[str]:
    listed = Counter(identity.name for identity in identities)
    keys: dict[bytes, PartyId] = {}
    for identity in identities:
        if listed[identity.name] > 1:
            yield f"{identity.name} is listed twice"
        owner = keys.setdefault(identity.verify_key, identity.name)
        if owner != identity.name:
            yield f"{owner} and {identity.name} have the same key"
        if (identity.role is Role.SERVER) != (identity.name == SERVER):
            yield f"the server is the party named '{SERVER}', and no other: {identity.name} is a {identity.role}"


def _anchor_problems(identities: Iterable[PublicIdentity], anchor: Anchor | None) -> Iterable[str]:
    """Names that the roster does not list may vote no more, but count: they were evicted since."""
    voters = () if anchor is None else anchor.electorate
    for identity in identities:
        if identity.name in voters and identity.role not in _PARTICIPANTS:
            yield f"{identity.name} is a {identity.role} and has no vote: leave it out of the electorate"
