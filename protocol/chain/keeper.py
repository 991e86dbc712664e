"""The server's side of the chain between attempts: which position the hellos prove, and who must be there to go on.

The server believes no claim without its certificate, and adds up the votes that hellos carry: after a power cut they
may be a certificate that nobody has seen. Participants check all of it again.

Implements specs/chain.md, section 3.
"""

from __future__ import annotations

from collections.abc import Collection

from veilsum.protocol.chain.member import ChainTerms
from veilsum.protocol.chain.record import ChainPoint, ChainRecord
from veilsum.protocol.chain.state import TakeStep
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
        """Our record at the newest certified position; None where it is there already.

        A server that holds the model and lacks the certified one cannot go on.
        """
        certificate, position = self.certified(), self.newest_position()
        if position <= self.record.position:
            return None
        if self.record.state is None:
            return self.record.advanced(None, certificate, position=position)
        after = self.record.next_state
        if after is None or certificate is None or after.hash != certificate.ballot.after:
            raise Rejection(
                AbortReason.WRONG_MODEL,
                f"the parties hold position {position}, the server's folder has {self.record.position}: restore "
                "a newer folder of the server, or begin another chain with the model that a party exports (veilsum "
                "export, veilsum roster sign --new-chain)",
            )
        return self.record.advanced(after, certificate, took_part=True)

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
