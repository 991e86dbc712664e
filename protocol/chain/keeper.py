"""The server's side of the chain between attempts: which position the hellos prove, and who must be there to go on.

The server believes no claim without its certificate, and adds up the votes that hellos carry: after a power cut they
may be a certificate that nobody has seen. Participants check all of it again.

Implements specs/chain.md, section 3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from veilsum.protocol.chain.asking import LackingState
from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.chain.member import ChainTerms
from veilsum.protocol.chain.record import ChainPoint, ChainRecord
from veilsum.protocol.chain.state import ChainState, TakeStep
from veilsum.protocol.chain.votes import Ballot, Certificate, SupportedBallot, Vote, VoteCount
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId


class ChainKeeper:
    """What the server holds of the chain; its machine makes events of what is said here."""

    def __init__(self, terms: ChainTerms, record: ChainRecord, take_step: TakeStep) -> None:
        self.terms = terms
        self.record = record
        self._take_step = take_step
        self._newest: Certificate | None = record.certificate
        self._votes: dict[bytes, VoteCount] = {}

    def forget_votes(self) -> None:
        """A new opening: hellos are collected anew."""
        self._newest, self._votes = self.record.certificate, {}

    def admit(self, name: PartyId, position: int, certificate: Certificate | None, vote: Vote | None) -> None:
        """Take in what a hello proves, or raise and change nothing."""
        terms = self.terms
        if not terms.certifies:
            return
        terms.require_proved(position, certificate)
        if vote is not None:
            self._count(name, position, certificate, vote)
        newest = self._newest.position if self._newest is not None else terms.anchor.position
        if certificate is not None and position > newest:
            self._newest = certificate

    def _count(self, name: PartyId, position: int, certificate: Certificate | None, vote: Vote) -> None:
        terms, ballot = self.terms, vote.ballot
        terms.require_reached(position)
        if ballot.position != position + 1 or ballot.electorate != terms.electorate(position, certificate):
            raise Rejection(
                AbortReason.BAD_CERTIFICATE,
                f"a vote on position {ballot.position} that does not follow {position}",
            )
        digest = ballot.digest(terms.ballots)
        count = self._votes.get(digest) or VoteCount(terms.ballots, terms.roster, terms.parameters, ballot)
        count.add(name, vote.signature)
        self._votes[digest] = count

    def certified(self) -> Certificate | None:
        """The newest certificate that was shown, or that open votes make."""
        newest = self._newest.position if self._newest is not None else self.terms.anchor.position
        for count in self._votes.values():
            certificate = count.certificate
            if certificate is not None and certificate.position > newest:
                return certificate
        return self._newest

    def caught_up(self) -> ChainRecord | None:
        """Our record at the newest certified position; None where it is there already, or its state is still to come.

        A server that holds the model goes there with the state that it kept, or has asked for (`lacking`).
        """
        certificate, position = self.certified(), self.newest_position()
        if position <= self.record.position:
            return None
        if self.terms.hides_hashes:
            return self.record.advanced(None, certificate, position=position)
        if self.lacking() is not None:
            return None
        return self.record.advanced(self.record.next_state, certificate, took_part=True)

    def lacking(self) -> LackingState | None:
        """The state that we are to hold and do not: of the newest position, or else of the next, if votes bear it."""
        if self.terms.hides_hashes:
            return None
        certificate, position, after = self.certified(), self.newest_position(), self.record.next_state
        if position == self.record.position and self.record.state is not None:
            return self._lacking_result(self.record.state)
        if position == self.terms.anchor.position:
            return LackingState(position, self.terms.anchor.state_hash)
        if certificate is None or (after is not None and after.hash == certificate.ballot.after):
            return None
        return LackingState(position, certificate.ballot.after)

    def _lacking_result(self, here: ChainState) -> LackingState | None:
        """What follows from our state by votes that can be passed on, if we never computed a state after it."""
        for count in self._votes.values() if self.record.next_state is None else ():
            ballot = count.ballot
            if count.supported is not None and (ballot.position, ballot.before) == (
                here.position + 1,
                here.hash,
            ):
                return LackingState(ballot.position, ballot.after)
        return None

    def regained(self, state: ChainState) -> ChainRecord:
        """Our record with a state that we lacked, and were given; it must be the one that votes or the anchor prove."""
        lacking = self.lacking()
        if lacking is None or (state.position, state.hash) != (lacking.position, lacking.hash):
            raise Rejection(
                AbortReason.WRONG_MODEL,
                f"the state given at position {state.position} is not the one asked for",
            )
        if state.position > self.newest_position():
            return self.record.voting(None, None, state)
        certificate = self.certified()
        proof = certificate if certificate is not None and certificate.position == state.position else None
        return self.record.advanced(state, proof)

    def holders(self, lacking: LackingState, hellos: Mapping[PartyId, HelloRecord]) -> frozenset[PartyId]:
        """Who of these says to hold that state, or voted for it."""
        voted = (count.signatures for count in self._votes.values() if count.ballot.after == lacking.hash)
        there = {name for name, hello in hellos.items() if hello.rounds_done == lacking.position}
        return frozenset(there.union(*voted)).intersection(hellos)

    def newest_position(self) -> int:
        """How far the chain is known to go: certified, signed by the organiser, or our own."""
        certificate = self.certified()
        proved = certificate.position if certificate is not None else 0
        return max(proved, self.terms.anchor.position, self.record.position)

    def missing_voters(self, voting: Collection[PartyId]) -> tuple[PartyId, ...]:
        """Whom a session lacks at the newest certified position, if these vote in it."""
        return self.terms.missing_voters(self.newest_position(), self.certified(), voting)

    @property
    def may_pass_on(self) -> bool:
        """Whether a result of our position may wait for votes; one that holds the model passes on what it kept."""
        return self.terms.certifies and (self.terms.hides_hashes or self.record.next_state is not None)

    def supported(self, voting: Collection[PartyId]) -> SupportedBallot | None:
        """The votes for a result that we can pass on, if they bear it out and these could certify it."""
        here = self.record.position
        if not self.may_pass_on or self.newest_position() != here:
            return None
        found, otherwise = None, set[PartyId]()
        for count in self._votes.values():
            if count.ballot.position == here + 1:
                if count.supported is not None and self._is_ours(count.ballot):
                    found = count.supported
                else:
                    otherwise |= count.signatures.keys()
        return None if found is None or self.missing_voters(set(voting) - otherwise) else found

    def _is_ours(self, ballot: Ballot) -> bool:
        """Whether it is for the state that we kept, or names none where we must not see it."""
        after = self.record.next_state
        known = (b"", b"") if self.terms.hides_hashes or after is None else (after.before, after.hash)
        return (ballot.before, ballot.after) == known

    def point(self) -> ChainPoint:
        electorate = self.terms.electorate(self.record.position, self.record.certificate)
        certifies, take_step = self.terms.certifies, self._take_step
        return ChainPoint(
            self.terms.chain, self.terms.ballots, electorate, certifies, self.record, take_step, self._keep
        )

    def _keep(self, record: ChainRecord) -> None:
        """A vote that was cast in an attempt is ours whatever becomes of the attempt."""
        self.record = record
