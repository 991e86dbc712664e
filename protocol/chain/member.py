"""A participant's side of the chain between attempts: where a session may begin, and which state it takes over.

A session begins at a position that is certified (or at the anchor), never before our own, and only if t(|E|) of the
electorate there are in it with their state: fewer could not certify what comes next, and a server could otherwise carve
out a small session in which it has the upper hand.

Implements specs/chain.md, section 3.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.record import ChainPoint, ChainRecord
from veilsum.protocol.chain.state import ChainState, TakeStep
from veilsum.protocol.chain.votes import (
    Certificate,
    SupportedBallot,
    electorate_at,
    require_certificate,
    require_support,
)
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.model import Model

_REMEMBERED = 8


@dataclass
class ChainTerms:
    """What both sides judge a chain by; `certifies`: whether parties vote at all.

    `hides_hashes`: the ballots that the server sees are without them.
    """

    anchor: Anchor
    roster: Roster = field(repr=False)
    parameters: Parameters = field(repr=False)
    certifies: bool
    hides_hashes: bool = False
    _verified: set[tuple[object, ...]] = field(default_factory=set, repr=False)

    @classmethod
    def of(
        cls, roster: Roster, parameters: Parameters, *, certifies: bool, hides_hashes: bool = False
    ) -> ChainTerms:
        if roster.anchor is None:
            raise LocalProtocolError(
                f"the roster names no first model, which the scheme {parameters.scheme} stands on: sign it anew"
            )
        return cls(roster.anchor, roster, parameters, certifies, hides_hashes)

    @property
    def chain(self) -> bytes:
        return self.anchor.chain

    @property
    def ballots(self) -> bytes:
        """What ballots are bound to."""
        return self.anchor.digest

    def verify(self, certificate: Certificate) -> None:
        """Verify a certificate, and only once if it comes again; with other signatures it is another one."""
        known = (certificate.ballot.digest(self.ballots), *sorted(certificate.signatures.items()))
        if known not in self._verified:
            require_certificate(self.ballots, self.roster, self.parameters, certificate)
            self._verified = {known, *list(self._verified)[: _REMEMBERED - 1]}

    def require_reached(self, position: int) -> None:
        """Refuse a position that the organiser has moved the beginning past: nothing there is certified any more."""
        if position < self.anchor.position:
            raise Rejection(
                AbortReason.REPLAY, f"position {position}, and the chain begins at {self.anchor.position}"
            )

    def require_proved(self, position: int, certificate: Certificate | None) -> None:
        """Refuse a claim to a position beyond the anchor that no certificate proves."""
        if not self.certifies or position <= self.anchor.position:
            return
        if certificate is None or certificate.position != position:
            raise Rejection(
                AbortReason.BAD_CERTIFICATE, f"position {position} is claimed without its certificate"
            )
        self.verify(certificate)

    def electorate(self, position: int, certificate: Certificate | None) -> tuple[PartyId, ...]:
        """Whose votes count there; nobody's is known where the organiser has moved the beginning past it."""
        if not self.certifies or position < self.anchor.position:
            return ()
        return electorate_at(self.anchor, position, certificate)

    def require_support(
        self, position: int, certificate: Certificate | None, supported: SupportedBallot
    ) -> None:
        """Refuse votes that do not follow from this position, or that are no more than may lie."""
        if not self.certifies:
            raise Rejection(AbortReason.BAD_CERTIFICATE, "nobody votes in this federation")
        electorate, ballot = self.electorate(position, certificate), supported.ballot
        beyond = certificate if position > self.anchor.position else None
        here = self.anchor.state_hash if beyond is None else beyond.ballot.after
        before = b"" if self.hides_hashes else here
        follows = (ballot.position, ballot.before, ballot.electorate) == (position + 1, before, electorate)
        if not follows or self.hides_hashes == bool(ballot.after):
            raise Rejection(
                AbortReason.BAD_CERTIFICATE,
                f"votes on position {ballot.position} that do not follow from position {position}",
            )
        require_support(self.ballots, self.roster, self.parameters, supported)

    def missing_voters(
        self, position: int, certificate: Certificate | None, voting: Collection[PartyId]
    ) -> tuple[PartyId, ...]:
        """Whom a session at this position lacks, if those in it who say that they vote there could certify nothing."""
        if not self.certifies:
            return ()
        electorate = self.electorate(position, certificate)
        missing = tuple(name for name in electorate if name not in voting)
        enough = len(electorate) - len(missing) >= self.parameters.threshold_of(len(electorate))
        return () if enough else missing


@dataclass(frozen=True)
class GivenState:
    """A state as another party hands it over; `claimed` is the hash that it names."""

    position: int
    before: bytes
    model: Model = field(repr=False)
    memory: bytes = field(repr=False)
    claimed: bytes = b""


class ChainMember:
    """What a participant holds of the chain; its machine makes events of what is said here."""

    def __init__(self, terms: ChainTerms, record: ChainRecord, take_step: TakeStep) -> None:
        self.terms = terms
        self.record = record
        self._take_step = take_step
        self._ahead: Certificate | None = None

    @property
    def position(self) -> int:
        return self.record.position

    def consider_session(
        self,
        position: int,
        certificate: Certificate | None,
        voting: Collection[PartyId],
        supported: SupportedBallot | None = None,
    ) -> None:
        """Refuse a session at the wrong position, without those who vote there, or with a result that few bear out."""
        if position < self.position:
            raise Rejection(
                AbortReason.REPLAY, f"a session at position {position}, this party holds {self.position}"
            )
        self.terms.require_reached(position)
        if position > self.position:
            self.terms.require_proved(position, certificate)
        known = certificate if position > self.position else self.record.certificate
        missing = self.terms.missing_voters(position, known, voting)
        if missing:
            raise Rejection(
                AbortReason.NO_QUORUM,
                f"too few of those who vote at position {position} are here; missing: {', '.join(missing[:10])}",
            )
        if supported is not None:
            self.terms.require_support(position, known, supported)
        self._ahead = certificate if position > self.position else None

    @property
    def ahead(self) -> Certificate | None:
        """What proves the position of the session, where it is beyond ours."""
        return self._ahead

    def won(self, position: int, certificate: Certificate | None, *, took_part: bool) -> ChainRecord | None:
        """Our record, moved on to the state that we voted for, if the certificate is for that; else None.

        A vote does not say that we were in the sum: it may lean on those of others.
        """
        after = self.record.next_state
        if after is None or certificate is None or position != after.position:
            return None
        self.terms.require_proved(position, certificate)
        if certificate.ballot.after != after.hash:
            return None
        self._ahead = None
        return self.record.advanced(after, certificate, took_part=took_part)

    def missing_here(self, voting: Collection[PartyId]) -> tuple[PartyId, ...]:
        """Whom a cohort at our position lacks to certify anything."""
        return self.terms.missing_voters(self.position, self.record.certificate, voting)

    def require_position(self, position: int) -> None:
        """Refuse a round at another position than ours."""
        if position != self.position:
            raise Rejection(
                AbortReason.WRONG_ROUND, f"position {position} begins, this party holds {self.position}"
            )

    def require_state(self, state_hash: bytes) -> None:
        """Refuse a round from another state than ours."""
        if state_hash != self.record.known_state.hash:
            raise Rejection(
                AbortReason.WRONG_MODEL,
                f"the server names another state at position {self.position} than ours",
            )

    def adopted(self, certificate: Certificate | None, given: GivenState, *, took_part: bool) -> ChainRecord:
        """Our record with a state that we are given, which must be the one that is certified.

        Where nobody votes, the server's word is all there is: the hash that it claims.
        """
        position = given.position
        self.terms.require_reached(position)
        state = ChainState.of(self.terms.chain, position, given.before, given.model, given.memory)
        if position == self.terms.anchor.position:
            expected, took_part = self.terms.anchor.state_hash, not self.record.forgetful
        elif self.terms.certifies:
            self.terms.require_proved(position, certificate)
            expected = certificate.ballot.after if certificate is not None else b""
        else:
            expected = given.claimed
        if state.hash != expected or given.claimed not in (b"", state.hash):
            raise Rejection(
                AbortReason.WRONG_MODEL, f"the state offered at position {position} is not the certified one"
            )
        return self.record.advanced(state, certificate, took_part=took_part)

    def point(self) -> ChainPoint:
        electorate = self.terms.electorate(self.position, self.record.certificate)
        certifies, take_step = self.terms.certifies, self._take_step
        return ChainPoint(
            self.terms.chain, self.terms.ballots, electorate, certifies, self.record, take_step, self._keep
        )

    def _keep(self, record: ChainRecord) -> None:
        """A vote that was cast in an attempt is ours whatever becomes of the attempt."""
        self.record = record
