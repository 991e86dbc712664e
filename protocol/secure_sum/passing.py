"""A result that was verified by others is passed on: votes that lean on votes.

A sum was opened, and fewer parties voted than a certificate takes: the server or the network stopped just then. If one
of the sum's parties never comes back, the sum cannot be repeated, and its tag key is gone with the session. But votes
travel in hellos. Where more parties voted for one ballot than may lie, one of them is honest; the first honest one had
no such votes to lean on, and verified the sum. So others may vote for the same ballot without the sum:

    server -> members   session.opened   the ballot, and the votes for it
    server -> members   round.opened     as in every round
    server -> members   result.passed    the state that the ballot names, for those who have not voted
    member -> server    sum.vote         its hash, and, of who has a vote, the signature
    server -> members   round.closed     the certificate

Nobody uploads, deals a share or signs a list in such a session, so what is stated about earlier attempts forbids
nothing in it; it ends with this one attempt, since who of the next electorate is fresh must be said anew. There is no
second certificate, because everyone still votes once at a position.

Rejected: attempt keys on disk, with which members could verify a sum that is shown later. They are secrets that would
outlive their session, and a party that was not in it could still not vote.

Implements specs/chain.md, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, SupportedBallot, Vote
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    ParticipantContext,
    ServerContext,
    handles,
    reason_from_text,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event, Send
from veilsum.protocol.machines.session import RoundClosed, require_model_shape
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.secure_sum.certifying import ResultVotes, SumVote, require_proof
from veilsum.protocol.wire.messages import Message, Stamp, Tensor, message


@message("result.passed")
@dataclass(frozen=True, slots=True)
class ResultPassed(Message):
    """The state that a supported ballot names; the state before it is the one that its receiver holds."""

    stamp: Stamp
    model: Tensor
    memory: Tensor


def require_true_of_us(context: ParticipantContext, ballot: Ballot) -> None:
    """Refuse a ballot that says of our own part in the sum what we know better."""
    record, position = context.record, ballot.position - 1
    if context.name not in ballot.survivors:
        return
    if not record.uploaded_at(position) and context.point.record.votes_here:
        raise Rejection(AbortReason.SURVIVOR_LIST, "the votes name us in a sum, and we gave no update")
    known = record.cohort_of(position)
    if known is not None and known != frozenset(ballot.survivors):
        raise Rejection(AbortReason.SURVIVOR_LIST, "the votes are on another list than we released for")


class PassingServerPhase(Phase):
    PASSING = "passing"
    CLOSED = "closed"


_S = PassingServerPhase


class PassingServer(AttemptMachine):
    table = TransitionTable(
        "server, passing a result on",
        _S.PASSING,
        {
            (_S.PASSING, SumVote): (_S.PASSING, _S.CLOSED),
            (_S.PASSING, "deadline"): (_S.CLOSED,),
            (_S.PASSING, "loss"): (_S.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext, supported: SupportedBallot) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._supported = supported
        after = context.point.record.next_state
        assert after is not None
        self._after = after
        self._awaited = set(context.session.members)
        self._votes = ResultVotes(context, supported.ballot.survivors, after, context.session.members)
        self._votes.know(supported.signatures)

    def start(self, now: float) -> list[Event]:
        self.deadline = now + 2 * self._context.timing.phase_s
        memory = np.frombuffer(self._after.memory, dtype=np.uint8)
        passed = ResultPassed(self.stamp, self._after.model, memory)
        lacking = self._awaited - self._supported.signatures.keys()
        return [*self._context.open_round(), *(Send(name, passed) for name in sorted(lacking))]

    @handles(SumVote)
    def count(self, sender: PartyId, vote: SumVote, now: float) -> list[Event]:
        self._votes.add(sender, vote)
        return self._conclude_when_all_voted(SumVote)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        self._awaited.discard(party)
        return self._conclude_when_all_voted("loss")

    def deadline_passed(self, now: float) -> list[Event]:
        return self._conclude("deadline")

    def _conclude_when_all_voted(self, trigger: Trigger) -> list[Event]:
        return [] if self._votes.silent(self._awaited) else self._conclude(trigger)

    def _conclude(self, trigger: Trigger) -> list[Event]:
        found = self._votes.conclude()
        if isinstance(found, Failed):
            return self.fail(trigger, _S.CLOSED, found)
        self.move(trigger, _S.CLOSED)
        self.outcome = replace(found, silent=self._votes.unheard)
        return []


class PassingMemberPhase(Phase):
    AWAITING_STATE = "awaiting-state"
    CERTIFYING = "certifying"
    CLOSED = "closed"


_P = PassingMemberPhase


class PassingMember(AttemptMachine):
    table = TransitionTable(
        "member, taking a result that is passed on",
        _P.AWAITING_STATE,
        {
            (_P.AWAITING_STATE, "start"): (_P.AWAITING_STATE, _P.CERTIFYING),
            (_P.AWAITING_STATE, ResultPassed): (_P.CERTIFYING,),
            **{
                (phase, trigger): (_P.CLOSED,)
                for phase in (_P.AWAITING_STATE, _P.CERTIFYING)
                for trigger in (RoundClosed, "deadline")
            },
        },
    )

    def __init__(self, context: ParticipantContext, supported: SupportedBallot) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._ballot: Ballot = supported.ballot
        self._after: ChainState | None = None
        self._signature = b""

    def start(self, now: float) -> list[Event]:
        """Refuse a ballot that we know better than, and wait for its state, unless we voted for it ourselves."""
        require_true_of_us(self._context, self._ballot)
        record, deadline = self._context.point.record, now + self._context.timing.patience_s
        if record.vote is None or record.vote.ballot != self._ballot:
            self.move("start", _P.AWAITING_STATE, deadline)
            return []
        self._after, self._signature = record.next_state, record.vote.signature
        self.move("start", _P.CERTIFYING, deadline)
        return []

    @handles(ResultPassed)
    def take_state(self, sender: PartyId, passed: ResultPassed, now: float) -> list[Event]:
        """Vote for the state, if it is the one that the ballot names and we did not vote otherwise."""
        require_from_server(sender)
        context, stamp = self._context, self._context.stamp
        require_model_shape(passed.model, context.parameters.dimension)
        point = context.point
        after = ChainState.of(
            point.chain, stamp.round + 1, point.state.hash, passed.model, passed.memory.tobytes()
        )
        if after.hash != self._ballot.after:
            raise Rejection(AbortReason.WRONG_MODEL, "the state that is passed on is not the one voted for")
        vote = Vote.cast(context.me, point.ballots, self._ballot) if point.record.votes_here else None
        try:
            record = point.cast(vote, None, after)
        except Rejection as lost:
            return context.withdraw(lost, now)
        self.move(ResultPassed, _P.CERTIFYING, now + context.timing.patience_s)
        self._after, self._signature = after, b"" if vote is None else vote.signature
        decided = DecisionMade(VoteCast(stamp.round, stamp.attempt, record))
        return [decided, Send(SERVER, SumVote(stamp, after.hash, self._signature))]

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        require_from_server(sender)
        if closed.committed and self._after is None:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE, "the round was closed, and its state was not shown"
            )
        self.move(RoundClosed, _P.CLOSED)
        self.outcome = self._concluded(closed)
        return []

    def _concluded(self, closed: RoundClosed) -> Committed | Failed:
        after, ballot, context = self._after, self._ballot, self._context
        if not closed.committed or after is None:
            reason = reason_from_text(closed.reason)
            return Failed(reason, SERVER, "the server closed the round without a result")
        try:
            proof = require_proof(context, closed, ballot, self._signature)
        except Rejection as problem:
            return Failed(problem.reason, SERVER, problem.detail, repeatable=False)
        took_part = context.record.uploaded_at(self.stamp.round) and context.name in ballot.survivors
        record = context.point.record.advanced(after, proof, took_part=took_part)
        return Committed(ballot.survivors, after.model, after.hash, chain=record)

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
