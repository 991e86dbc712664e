"""From an opened sum to a certified state: everyone checks the sum, takes the step, and says what came of it.

    server -> members   sum.opened   the words of the sum, still with the sum of the tags
    member -> server    sum.vote     the hash of the state that follows, signed
    server -> members   round.closed the certificate

A member that cannot verify the sum votes for nothing. A member that is not in the sum, or never saw the list that it is
over, checks all the same and votes for nothing: it takes the state over when it is certified.

Implements specs/chain.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from veilsum.protocol.agreed.listing import OneBitEach, require_one_form
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote, VoteCount, require_certificate
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    Committed,
    Failed,
    ParticipantContext,
    ServerContext,
    reason_from_text,
    require_absent,
)
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event, Send, WorkRequested
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.secure_sum.agreement import spoiled
from veilsum.protocol.secure_sum.verification import TAG_WORDS, AttemptTags, upload_length
from veilsum.protocol.wire.messages import Length, Message, Stamp, Tensor, message

SPOILED = (AbortReason.CHECK_FAILED, AbortReason.SUM_FALSIFIED)


@message("sum.opened")
@dataclass(frozen=True, slots=True)
class SumOpened(Message):
    """The sum, and who is in it: `survivors` or, with a bit for each participant of the roster, `present`."""

    stamp: Stamp
    survivors: tuple[PartyId, ...]
    words: Tensor
    present: OneBitEach = b""

    def require_consistent(self) -> None:
        require_one_form(self.survivors, self.present)


@message("sum.vote")
@dataclass(frozen=True, slots=True)
class SumVote(Message):
    """The state that a member computed; one without a vote at this position says so without a signature."""

    states_result = True

    stamp: Stamp
    state_hash: Annotated[bytes, Length(32)]
    signature: Annotated[bytes, Length(64, or_empty=True)]


@dataclass(frozen=True)
class CheckedSum:
    """A sum that was verified, and the state that follows from it."""

    survivors: tuple[PartyId, ...]
    total: RingVector = field(repr=False)
    after: ChainState = field(repr=False)


class SumCheck:
    """A member's side, without phases."""

    def __init__(self, context: ParticipantContext, tags: AttemptTags) -> None:
        self._context = context
        self._tags = tags
        self._closed: RoundClosed | None = None
        self._checked: CheckedSum | None = None
        self._signature = b""

    def request(
        self,
        opened: SumOpened,
        survivors: tuple[PartyId, ...],
        then: Callable[[CheckedSum, float], list[Event]],
    ) -> list[Event]:
        """The work that verifies the sum and takes the step; one that does not verify makes us withdraw."""
        parameters = self._context.parameters
        words = parameters.encoding.ring.require(opened.words, upload_length(parameters))
        for name in survivors:
            self._context.session.require_member(name)
        return [WorkRequested(lambda: self._check(survivors, words), then, self._context.withdraw)]

    def _check(self, survivors: tuple[PartyId, ...], words: RingVector) -> CheckedSum:
        total, limbs = words[:-TAG_WORDS], words[-TAG_WORDS:]
        self._tags.require_sum(total, limbs, survivors)
        mean, _ = self._context.parameters.encoding.decode_mean(total, len(survivors))
        return CheckedSum(survivors, total, self._context.point.next_state(mean))

    def vote(self, checked: CheckedSum, agreed: tuple[PartyId, ...] | None) -> list[Event]:
        """Decide, then vote, if the sum is over the list that we agreed on. Raises if we voted otherwise before."""
        self._checked = checked
        point, stamp = self._context.point, self._context.stamp
        if not point.certifies or checked.survivors != agreed:
            return []
        ballot, after = point.ballot(checked.after, checked.survivors), checked.after
        vote = Vote.cast(self._context.me, point.ballots, ballot) if point.record.votes_here else None
        decided = DecisionMade(VoteCast(stamp.round, stamp.attempt, point.cast(vote, None, after)))
        self._signature = vote.signature if vote is not None else b""
        return [decided, Send(SERVER, SumVote(stamp, after.hash, self._signature))]

    def conclude(self, closed: RoundClosed) -> Committed | Failed | None:
        """What the server's closing word means, as soon as we have checked the sum ourselves."""
        self._closed = closed
        return self.outcome()

    def outcome(self) -> Committed | Failed | None:
        closed, checked = self._closed, self._checked
        if closed is None or (checked is None and closed.committed):
            return None
        if not closed.committed or checked is None:
            reason = reason_from_text(closed.reason)
            return Failed(reason, SERVER, "the server closed the round without a result")
        try:
            record = self._proved(closed, checked)
        except Rejection as problem:
            return Failed(problem.reason, SERVER, problem.detail, repeatable=False)
        after = checked.after
        return Committed(checked.survivors, after.model, after.hash, checked.total, chain=record)

    def _proved(self, closed: RoundClosed, checked: CheckedSum) -> ChainRecord:
        point, after = self._context.point, checked.after
        ballot = point.ballot(after, checked.survivors)
        if not point.certifies:
            require_closed_with(closed, ballot)
            return point.record.advanced(after, None)
        proof = require_proof(self._context, closed, ballot, self._signature)
        return point.record.advanced(after, proof, took_part=self._context.name in checked.survivors)


def require_closed_with(closed: RoundClosed, ballot: Ballot) -> None:
    """Refuse a round that is closed with another result than ours."""
    if closed.members != ballot.survivors or closed.next_model_hash != ballot.after:
        raise Rejection(AbortReason.WRONG_MODEL, "the round was closed with another sum than we checked")


def require_proof(
    context: ParticipantContext, closed: RoundClosed, ballot: Ballot, signature: bytes
) -> Certificate:
    """What proves the result that a round is closed with: a certificate of the very ballot that is ours."""
    require_closed_with(closed, ballot)
    certificate = closed.certificate
    if certificate is None or certificate.ballot != ballot:
        raise Rejection(AbortReason.BAD_CERTIFICATE, "the certificate is for another state than ours")
    own = {context.name: signature} if signature else {}
    require_certificate(context.point.ballots, context.roster, context.parameters, certificate, own)
    return certificate


class ResultVotes:
    """The server's side, without phases: votes for the state that it computed itself, and who says it is spoiled."""

    def __init__(
        self,
        context: ServerContext,
        survivors: tuple[PartyId, ...],
        after: ChainState,
        asked: tuple[PartyId, ...] | None = None,
    ) -> None:
        """`asked` is who votes; where the sum is shown, those who are in it."""
        self._context = context
        self._survivors = survivors
        self._asked = survivors if asked is None else asked
        self.after = after
        point = context.point
        ballot = point.ballot(after, survivors)
        self._count = VoteCount(point.ballots, context.roster, context.parameters, ballot)
        self._electors = set(self._asked).intersection(point.electorate)
        self._voters: set[PartyId] = set()
        self._refusals: dict[PartyId, AbortReason] = {}

    def decide(self) -> Event:
        """Keep the state before anyone hears of the sum: votes for it may be a certificate when we are back."""
        stamp = self._context.stamp
        record = self._context.point.cast(None, None, self.after)
        return DecisionMade(VoteCast(stamp.round, stamp.attempt, record))

    def add(self, sender: PartyId, vote: SumVote) -> None:
        require_absent(sender, self._voters)
        if sender not in self._asked:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a vote of a party that is not in the sum")
        if vote.state_hash != self.after.hash:
            raise Rejection(AbortReason.WRONG_MODEL, "another state follows from the sum")
        if vote.signature:
            self._count.add(sender, vote.signature)
        self._voters.add(sender)

    def know(self, signatures: Mapping[PartyId, bytes]) -> None:
        """Count votes that were verified when they came in hellos."""
        for name, signature in signatures.items():
            self._count.add(name, signature, sure=True)
            self._voters.add(name)

    @property
    def unheard(self) -> tuple[PartyId, ...]:
        """Who is in the sum and has not said that it holds the state."""
        return tuple(name for name in self._survivors if name not in self._voters)

    def hear_refusal(self, party: PartyId, reason: str) -> None:
        found = reason_from_text(reason)
        if found in SPOILED:
            self._refusals[party] = found

    def silent(self, awaited: set[PartyId]) -> set[PartyId]:
        """Whose vote is due; one that was given the state may have none, and is waited for only if it is needed."""
        due = (awaited & self._electors) - self._voters - self._refusals.keys()
        return due - self._context.behind if self._count.enough else due

    def conclude(self, total: RingVector | None = None) -> Committed | Failed:
        """The certificate, or why there is none; a sum that enough parties found spoiled is not repeated."""
        point, after, survivors = self._context.point, self.after, self._survivors
        certificate = self._count.certificate
        silent = tuple(sorted(self._electors - self._voters - self._context.behind))
        if certificate is None:
            return uncertified(self._context, self._count, silent, self._refusals)
        record = point.record.advanced(after, certificate)
        return Committed(survivors, after.model, after.hash, total, silent, chain=record)


def uncertified(
    context: ServerContext,
    count: VoteCount,
    silent: tuple[PartyId, ...],
    refusals: Mapping[PartyId, AbortReason],
) -> Failed:
    """Why a result has too few votes; a sum that more parties call spoiled than may lie is not repeated."""
    if len(refusals) > context.parameters.colluders:
        reason = min(refusals.values(), key=lambda one: one.name)
        return Failed(reason, detail=spoiled(count.ballot.survivors), repeatable=False)
    found, needed = len(count.signatures), count.needed
    missing = ", ".join(silent[:10])
    detail = f"{found} parties voted for the result, {needed} are needed; missing: {missing}"
    return Failed(AbortReason.TIMED_OUT, silent[0] if silent else "", detail)
