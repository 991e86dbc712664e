"""A third-party scheme, outside the package: `ballot`, a sum under masks that cancel only if everyone votes.

Every pair of clients derives one mask stream from the keys of their hellos; the lower name adds it, the
higher subtracts it. The server can open the sum over all members of the session and no other. It is the
smallest useful secure sum: no shares, no survivor lists, and one missing vote ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from veilsum.protocol.schemes import (
    SERVER,
    AbortReason,
    AttemptMachine,
    Committed,
    Event,
    Failed,
    LocalResult,
    Message,
    Model,
    Parameters,
    ParticipantContext,
    PartyId,
    Phase,
    ProtocolError,
    Rejection,
    RingVector,
    RoundClosed,
    Scheme,
    Send,
    ServerContext,
    Stamp,
    Tensor,
    TransitionTable,
    WorkRequested,
    failure_of,
    handles,
    hash_model,
    mask_upload,
    message,
    outcome_of,
    pair_mask_key,
    register,
    require_absent,
    require_from_server,
    secure_sum_problems,
)


@message("ballot.vote")
@dataclass(frozen=True, slots=True)
class Vote(Message):
    stamp: Stamp
    vector: Tensor


class UrnPhase(Phase):
    COLLECTING = "collecting"
    COUNTING = "counting"
    CLOSED = "closed"


class VoterPhase(Phase):
    VOTING = "voting"
    AWAITING_RESULT = "awaiting-result"
    CLOSED = "closed"


class Urn(AttemptMachine):
    table = TransitionTable(
        "ballot server",
        UrnPhase.COLLECTING,
        {
            (UrnPhase.COLLECTING, Vote): (UrnPhase.COLLECTING, UrnPhase.COUNTING),
            (UrnPhase.COLLECTING, "deadline"): (UrnPhase.CLOSED,),
            (UrnPhase.COUNTING, "work"): (UrnPhase.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._votes: dict[PartyId, RingVector] = {}

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.training_s + self._context.timing.phase_s
        return self._context.open_round()

    @handles(Vote)
    def collect(self, sender: PartyId, vote: Vote, now: float) -> list[Event]:
        parameters = self._context.parameters
        require_absent(sender, self._votes)
        self._votes[sender] = parameters.encoding.ring.require(vote.vector, parameters.vector_length)
        if len(self._votes) < len(self._context.session.members):
            return []
        self.move(Vote, UrnPhase.COUNTING)
        return [WorkRequested(self._count, self._counted, self._not_counted)]

    def _count(self) -> tuple[RingVector, Model]:
        parameters, model = self._context.parameters, self._context.model
        assert model is not None
        total = parameters.encoding.ring.zeros(parameters.vector_length)
        for vote in self._votes.values():
            total += vote
        mean, _ = parameters.encoding.decode_mean(total, len(self._votes))
        return total, self._context.next_model(model, mean)

    def _counted(self, counted: tuple[RingVector, Model], now: float) -> list[Event]:
        total, model = counted
        self.move("work", UrnPhase.CLOSED)
        self.outcome = Committed(self._context.session.members, model, hash_model(model), total)
        return []

    def _not_counted(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", UrnPhase.CLOSED, failure_of(error, repeatable=False))

    def deadline_passed(self, now: float) -> list[Event]:
        missing = tuple(name for name in self._context.session.members if name not in self._votes)
        failed = Failed(AbortReason.MISSING_UPLOAD, missing[0], missing=missing, repeatable=False)
        return self.fail("deadline", UrnPhase.CLOSED, failed)


class Voter(AttemptMachine):
    table = TransitionTable(
        "ballot client",
        VoterPhase.VOTING,
        {
            (VoterPhase.VOTING, "work"): (VoterPhase.AWAITING_RESULT,),
            **{
                (phase, trigger): (VoterPhase.CLOSED,)
                for phase in (VoterPhase.VOTING, VoterPhase.AWAITING_RESULT)
                for trigger in (RoundClosed, "deadline")
            },
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context.stamp)
        self._context = context

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.patience_s
        return self._context.train(self._mask, now)

    def _mask(self, trained: LocalResult, now: float) -> list[Event]:
        return [WorkRequested(lambda: self._masked(trained), self._vote, self._context.withdraw)]

    def _masked(self, trained: LocalResult) -> RingVector:
        context, encoding = self._context, self._context.parameters.encoding
        vector = encoding.encode(trained.payload, trained.samples)
        others = [name for name in context.session.members if name != context.name]
        keys = {
            other: pair_mask_key(
                context.box_key, context.session.box_key_of(other), self.stamp, (context.name, other)
            )
            for other in others
        }
        mask_upload(encoding.ring, vector, context.name, keys)
        return vector

    def _vote(self, vector: RingVector, now: float) -> list[Event]:
        """Once the vote is out its sum may be open: no other sum of this round may ever hold it."""
        self.move("work", VoterPhase.AWAITING_RESULT, now + self._context.timing.patience_s)
        spent = self._context.record.spend(self.stamp, (), ())
        return [spent, Send(SERVER, Vote(self.stamp, vector))]

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        require_from_server(sender)
        if closed.committed and closed.members != self._context.session.members:
            raise Rejection(AbortReason.SURVIVOR_LIST, "the sum of a ballot is over everyone")
        self.move(RoundClosed, VoterPhase.CLOSED)
        self.outcome = outcome_of(closed, self._context.name)
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", VoterPhase.CLOSED, Failed(AbortReason.TIMED_OUT, SERVER))


@register
class Ballot(Scheme):
    name = "ballot"
    learns = {
        "server": "the sum over all members, and the global model",
        "client": "the global model",
        "broker": "who talks when, and how much",
    }
    drop_points = {"upload": Vote}
    machines = {"ballot server": Urn, "ballot client": Voter}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return Urn(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return Voter(context)

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from secure_sum_problems(parameters)
