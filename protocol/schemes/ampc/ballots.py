"""A peer's two votes on one result: one that the server may see, and one that says which model it is.

The server counts the votes without hashes: they tell that the chain goes on, and with whom. The votes with hashes
travel sealed under the group key, and a peer commits only when t(|E|) of those are here, too.

Implements specs/chain.md, section 4.
"""

from __future__ import annotations

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, Vote, VoteCount
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import ParticipantContext
from veilsum.protocol.schemes.ampc.decomposition import keyed_state_hash, peers_box_key
from veilsum.protocol.schemes.ampc.messages import ResultDigest
from veilsum.protocol.secure_sum.group_key import GroupKey


class BallotPair:
    """Our votes under both ballots, and the votes of the others."""

    def __init__(self, context: ParticipantContext, group: GroupKey, ballot: Ballot) -> None:
        self._context = context
        self._group = group
        anchor = context.point.ballots
        public = ballot.without_hashes()
        self._vote = Vote.cast(context.me, anchor, public)
        self._sealed_vote = Vote.cast(context.me, anchor, ballot)
        self._counts = [
            VoteCount(anchor, context.roster, context.parameters, one) for one in (public, ballot)
        ]
        self._counted: set[PartyId] = set()

    def digest(self) -> ResultDigest:
        """What we tell the others; the server cannot tell what is hashed."""
        stamp, ballot = self._context.stamp, self._sealed_vote.ballot
        keyed = keyed_state_hash(self._group, stamp, ballot.after, "result")
        if not self._context.point.record.votes_here:
            return ResultDigest(stamp, keyed, b"", b"")
        key = peers_box_key(self._group, stamp, self._context.name, "vote")
        sealed = seal_box(key, self._sealed_vote.signature, b"")
        return ResultDigest(stamp, keyed, self._vote.signature, sealed)

    def cast(self, after: ChainState) -> ChainRecord:
        """What we keep from here on; refused if we voted for another state before."""
        point = self._context.point
        if not point.record.votes_here:
            return point.cast(None, None, after)
        self._add(self._context.name, self._vote.signature, self._sealed_vote.signature)
        return point.cast(self._vote, self._sealed_vote, after)

    def add(self, voter: PartyId, digest: ResultDigest) -> bool:
        """Count another peer's votes; whether both are what they should be."""
        if voter in self._counted or not digest.vote:
            return True
        try:
            key = peers_box_key(self._group, self._context.stamp, voter, "vote")
            self._add(voter, digest.vote, open_box(key, digest.sealed_vote, b""))
        except Rejection:
            return False
        return True

    def _add(self, voter: PartyId, *signatures: bytes) -> None:
        for count, signature in zip(self._counts, signatures, strict=True):
            count.add(voter, signature)
        self._counted.add(voter)

    @property
    def certified(self) -> bool:
        return all(count.enough for count in self._counts)

    def record(self, after: ChainState) -> ChainRecord:
        """What we keep of the chain once the result is certified."""
        public, sealed = (count.certificate for count in self._counts)
        return self._context.point.record.advanced(after, public, sealed, took_part=True)
