"""What a party keeps of a chain across rounds and restarts, and what an attempt is told of it.

A vote and the state that it is for are durable before the vote leaves: after a power cut the votes that hellos carry
still make a certificate, and the state is at hand.

Implements specs/chain.md, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.chain.state import ChainState, TakeStep
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId


@dataclass(frozen=True)
class ChainRecord:
    """The newest certified position with what proves it, and our vote on the next one.

    `state` is None at a server that holds no model. Where the server must not see hashes, `certificate` and `vote` are
    without them, and the sealed ones, which only peers exchange, have them. `votes_here`: our own disk shows that we
    were in the sum that led to this position, or it is the anchor; who came by it otherwise has no vote on the next
    one, since it may have cast one that it has forgotten. `anchor` is the digest of the anchor that this is under, and
    `chain` the id of its chain.
    """

    position: int
    state: ChainState | None = field(default=None, repr=False)
    certificate: Certificate | None = field(default=None, repr=False)
    sealed_certificate: Certificate | None = field(default=None, repr=False)
    vote: Vote | None = field(default=None, repr=False)
    sealed_vote: Vote | None = field(default=None, repr=False)
    next_state: ChainState | None = field(default=None, repr=False)
    votes_here: bool = True
    forgetful: bool = False
    """Whether we lost what we knew, and have not been in a sum since: at the anchor, too, we may have voted before."""
    anchor: bytes = b""
    chain: bytes = b""

    def under(self, anchor: Anchor) -> ChainRecord:
        """The same record under the organiser's newest anchor: a checkpoint opens its position anew."""
        if self.anchor == anchor.digest:
            return self
        if not self.anchor:
            self._require_begins_at(anchor)
            return replace(self, anchor=anchor.digest, chain=anchor.chain)
        self._require_goes_on_at(anchor)
        return replace(
            self,
            position=self.position if self.state is not None else anchor.position,
            anchor=anchor.digest,
            vote=None,
            sealed_vote=None,
            next_state=None,
            votes_here=True,
            forgetful=False,
        )

    def _require_begins_at(self, anchor: Anchor) -> None:
        """Refuse another first model than the one that the organiser signed."""
        here = self.state is not None and self.position == anchor.position
        if here and self.known_state.hash != anchor.state_hash:
            raise LocalProtocolError(
                f"the chain begins with state {anchor.state_hash.hex()} of position {anchor.position}, this party with "
                f"{self.known_state.hash.hex()}: start it with the model that was signed, a file (--init) or the "
                "task's own (without --init), or sign this one"
            )

    def _require_goes_on_at(self, anchor: Anchor) -> None:
        """Refuse another chain, a beginning that is behind us, and another state where we are."""
        if self.chain != anchor.chain:
            raise LocalProtocolError("this party holds another chain of models: --fresh begins the new one")
        if self.position > anchor.position:
            raise LocalProtocolError(
                f"the chain goes on from position {anchor.position}, this party holds {self.position}: the organiser "
                "signs a checkpoint there, or --fresh lets this party be given the older state"
            )
        here = self.state is not None and self.position == anchor.position
        if here and self.known_state.hash != anchor.state_hash:
            raise LocalProtocolError(
                f"the chain goes on from state {anchor.state_hash.hex()} of position {anchor.position}, this party "
                f"holds {self.known_state.hash.hex()}: the organiser signs the right one, or --fresh forgets ours"
            )

    @property
    def known_state(self) -> ChainState:
        assert self.state is not None
        return self.state

    def voting(self, vote: Vote | None, sealed: Vote | None, after: ChainState) -> ChainRecord:
        """With our vote for the state after this one; refused if we voted otherwise: for another, or over others.

        Where we state that state without a vote, a vote that we cast for it before stays.
        """
        other = self.vote is not None and vote is not None and self.vote.ballot != vote.ballot
        if self.next_state is not None and (self.next_state.hash != after.hash or other):
            raise Rejection(
                AbortReason.POSITION_LOST,
                f"this party voted otherwise at position {after.position}: the organiser's checkpoint goes on",
            )
        return replace(self, vote=vote or self.vote, sealed_vote=sealed or self.sealed_vote, next_state=after)

    def advanced(
        self,
        state: ChainState | None,
        certificate: Certificate | None,
        sealed: Certificate | None = None,
        *,
        position: int | None = None,
        took_part: bool = False,
    ) -> ChainRecord:
        """At a later position, which these certify; `took_part`: our own upload is in the sum that led there."""
        reached = state.position if state is not None else position
        assert reached is not None
        forgetful = self.forgetful and not took_part
        here = ChainRecord(reached, state, certificate, sealed, votes_here=took_part, forgetful=forgetful)
        return replace(here, anchor=self.anchor, chain=self.chain)


@dataclass(frozen=True)
class ChainPoint:
    """Where the chain stands for one party in one attempt; `keep` is told of a vote, which outlives the attempt."""

    chain: bytes
    ballots: bytes
    """What ballots are bound to: the digest of the anchor."""
    electorate: tuple[PartyId, ...]
    certifies: bool
    record: ChainRecord = field(repr=False)
    take_step: TakeStep = field(repr=False)
    keep: Callable[[ChainRecord], None] = field(repr=False)

    @property
    def state(self) -> ChainState:
        return self.record.known_state

    def next_state(self, mean: NDArray[np.float64]) -> ChainState:
        """The state after a verified sum. Heavy: runs away from the event loop."""
        now = self.state
        model, memory = self.take_step(now.model, now.memory, mean, now.position)
        return ChainState.of(self.chain, now.position + 1, now.hash, model, memory)

    def cast(self, vote: Vote | None, sealed: Vote | None, after: ChainState) -> ChainRecord:
        """From here on this is our vote at this position, in whatever attempt; the record must be durable first."""
        record = self.record.voting(vote, sealed, after)
        self.keep(record)
        return record

    def ballot(self, after: ChainState, survivors: tuple[PartyId, ...]) -> Ballot:
        return Ballot(after.position, after.before, after.hash, self.electorate, survivors)
