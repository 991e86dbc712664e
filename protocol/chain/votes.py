"""Votes and certificates: the server can neither choose the next model nor show two of them.

    vote          a party's signature under a ballot: position, hash before, hash after, electorate, survivors
    certificate   votes of t(|E|) parties of the electorate E for one ballot

One vote per position, ever. The electorate of a position are the survivors that its certificate names; at an anchor it
is what the organiser signed. Two certificates at one position would take 2 t(|E|) > |E| + c votes of |E| parties of
whom c vote twice: there is no fork, whatever sessions the server makes. At least one voter is honest, and compared the
electorate with the certificate before; so whoever comes later needs the last certificate alone.

No session or attempt is in a ballot: votes for a sum that is repeated add up. The anchor is: a checkpoint opens its
position anew, and what was voted on there before counts for nothing. Where peers keep the model from the
server, the ballot that the server sees has no hashes, and the one that has them travels sealed among the peers.

A ballot is *supported* by the votes of more parties than may lie. One of them is honest, and so was the first honest
party that voted for it, which had nobody to lean on: it verified the sum itself. So whoever holds the state that a
supported ballot names may vote for it without the sum and its tags (protocol/secure_sum/passing.py).

Rejected: a certificate for every position, kept and shown for ever (the last one says as much); a majority of those
who are present instead of t(|E|) of the electorate (a server picks who is present).

Implements specs/chain.md, section 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Length, record

VOTE_DOMAIN = "vote"


@record
@dataclass(frozen=True, slots=True)
class Ballot:
    """What is voted on: that the chain goes from `before` to `after`, its state at `position`.

    Both hashes are empty where the server must not see them.
    """

    position: int
    before: Annotated[bytes, Length(32, or_empty=True)]
    after: Annotated[bytes, Length(32, or_empty=True)]
    electorate: tuple[PartyId, ...]
    survivors: tuple[PartyId, ...]

    def digest(self, anchor: bytes) -> bytes:
        """What is signed; `anchor` is the digest of the anchor that the position is counted from."""
        framed = length_prefixed(
            domain_tag("ballot"),
            anchor,
            self.position.to_bytes(8, "big"),
            self.before,
            self.after,
            "\n".join(self.electorate).encode(),
            "\n".join(self.survivors).encode(),
        )
        return hashlib.sha256(framed).digest()

    def without_hashes(self) -> Ballot:
        """The same decision, without a word about the model."""
        return replace(self, before=b"", after=b"")


@record
@dataclass(frozen=True, slots=True)
class Vote:
    """One party's signature under a ballot."""

    ballot: Ballot
    signature: Annotated[bytes, Length(64)]

    @classmethod
    def cast(cls, me: Identity, anchor: bytes, ballot: Ballot) -> Vote:
        return cls(ballot, me.signing.sign(VOTE_DOMAIN, ballot.digest(anchor)))


@record
@dataclass(frozen=True, slots=True)
class Certificate:
    """A ballot, and enough signatures under it."""

    ballot: Ballot
    signatures: Mapping[PartyId, Annotated[bytes, Length(64)]]

    @property
    def position(self) -> int:
        return self.ballot.position


@record
@dataclass(frozen=True, slots=True)
class SupportedBallot:
    """A ballot, and signatures of more parties than may lie: too few for a certificate, enough to bear other votes."""

    ballot: Ballot
    signatures: Mapping[PartyId, Annotated[bytes, Length(64)]]


class VoteCount:
    """The votes for one ballot, until they are a certificate."""

    def __init__(self, anchor: bytes, roster: Roster, parameters: Parameters, ballot: Ballot) -> None:
        self._roster = roster
        self._digest = ballot.digest(anchor)
        self.ballot = ballot
        self.needed = parameters.threshold_of(len(ballot.electorate))
        self._may_lie = parameters.colluders
        self.signatures: dict[PartyId, bytes] = {}

    def add(self, voter: PartyId, signature: bytes, *, sure: bool = False) -> None:
        """Verify a vote, unless we are sure of it, and count it if its voter is of the electorate."""
        if not sure:
            self._roster.verify(voter, VOTE_DOMAIN, self._digest, signature)
        if voter in self.ballot.electorate:
            self.signatures[voter] = signature

    @property
    def enough(self) -> bool:
        return len(self.signatures) >= self.needed

    @property
    def certificate(self) -> Certificate | None:
        """All votes that are here, if they are enough: a voter that is evicted later takes its vote along."""
        if not self.enough:
            return None
        return Certificate(self.ballot, dict(sorted(self.signatures.items())))

    @property
    def supported(self) -> SupportedBallot | None:
        """The votes that are here, if one of them must be of an honest party."""
        if len(self.signatures) <= self._may_lie:
            return None
        return SupportedBallot(self.ballot, dict(sorted(self.signatures.items())))


def require_certificate(
    anchor: bytes,
    roster: Roster,
    parameters: Parameters,
    certificate: Certificate,
    own: Mapping[PartyId, bytes] | None = None,
) -> None:
    """Refuse a certificate that too few of its electorate signed; as many signatures as are needed are verified.

    Who was evicted or has another key since is still of the electorate, and its signature counts for nothing. `own` is
    what we signed.
    """
    ballot = certificate.ballot
    _require_lists(ballot, certificate.signatures)
    count, forged = VoteCount(anchor, roster, parameters, ballot), None
    for voter, signature in certificate.signatures.items():
        if voter in roster.participants and not count.enough:
            try:
                count.add(voter, signature, sure=(own or {}).get(voter) == signature)
            except Rejection as unverified:
                forged = unverified
    if not count.enough:
        raise forged or Rejection(
            AbortReason.BAD_CERTIFICATE,
            f"{len(count.signatures)} of {len(ballot.electorate)} voted for position {ballot.position}, "
            f"{count.needed} are needed",
        )


def require_support(
    anchor: bytes, roster: Roster, parameters: Parameters, supported: SupportedBallot
) -> None:
    """Refuse a ballot that no more parties voted for than may lie; every signature is verified."""
    ballot = supported.ballot
    _require_lists(ballot, supported.signatures)
    count = VoteCount(anchor, roster, parameters, ballot)
    for voter, signature in supported.signatures.items():
        if voter in roster.participants:
            count.add(voter, signature)
    if count.supported is None:
        raise Rejection(
            AbortReason.BAD_CERTIFICATE,
            f"{len(count.signatures)} voted for position {ballot.position}, and as many may lie",
        )


def _require_lists(ballot: Ballot, signatures: Collection[PartyId]) -> None:
    names, survivors = list(ballot.electorate), list(ballot.survivors)
    if not names or names != sorted(set(names)) or not set(signatures) <= set(names):
        raise Rejection(
            AbortReason.BAD_CERTIFICATE, "its electorate is not a sorted list with every signer in it"
        )
    if not survivors or survivors != sorted(set(survivors)):
        raise Rejection(AbortReason.BAD_CERTIFICATE, "its survivors are not a sorted list")


def electorate_at(anchor: Anchor, position: int, certificate: Certificate | None) -> tuple[PartyId, ...]:
    """Whose votes count at a position: the survivors that its certificate names, or what the organiser signed."""
    if position == anchor.position:
        return anchor.electorate
    if certificate is None or certificate.position != position:
        raise LocalProtocolError(f"position {position} has no certificate: nobody is known to vote there")
    return certificate.ballot.survivors
