"""A third-party scheme, outside the package: `open-mean`, FedAvg with a message of its own, in which nothing is hidden.

Clients send their updates in clear, and the server takes the weighted mean of all of them. The scheme says so twice: in
`learns` to people, and in `carries` to the audit, which then attacks every update.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilsum.protocol.schemes import (
    SERVER,
    AbortReason,
    AttemptMachine,
    Carried,
    Committed,
    Event,
    Failed,
    LocalResult,
    Message,
    ParticipantContext,
    PartyId,
    Phase,
    Rejection,
    RoundClosed,
    Scheme,
    Send,
    ServerContext,
    Stamp,
    Tensor,
    TransitionTable,
    handles,
    hash_model,
    message,
    outcome_of,
    register,
    require_absent,
    require_from_server,
    weighted_mean,
)


@message("open-mean.update")
@dataclass(frozen=True, slots=True)
class OpenUpdate(Message):
    stamp: Stamp
    weight: int
    numbers: Tensor


class TakerPhase(Phase):
    TAKING = "taking"
    CLOSED = "closed"


class GiverPhase(Phase):
    TRAINING = "training"
    AWAITING_RESULT = "awaiting-result"
    CLOSED = "closed"


class Taker(AttemptMachine):
    table = TransitionTable(
        "open-mean server",
        TakerPhase.TAKING,
        {
            (TakerPhase.TAKING, OpenUpdate): (TakerPhase.TAKING, TakerPhase.CLOSED),
            (TakerPhase.TAKING, "deadline"): (TakerPhase.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._updates: dict[PartyId, OpenUpdate] = {}

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.training_s + self._context.timing.phase_s
        return self._context.open_round()

    @handles(OpenUpdate)
    def take(self, sender: PartyId, update: OpenUpdate, now: float) -> list[Event]:
        require_absent(sender, self._updates)
        self._require_sound(update)
        self._updates[sender] = update
        members = self._context.session.members
        if len(self._updates) == len(members):
            updates = [self._updates[name] for name in members]
            mean = weighted_mean([one.numbers for one in updates], [one.weight for one in updates])
            assert self._context.model is not None
            model = self._context.next_model(self._context.model, mean)
            self.move(OpenUpdate, TakerPhase.CLOSED)
            self.outcome = Committed(members, model, hash_model(model))
        return []

    def _require_sound(self, update: OpenUpdate) -> None:
        parameters = self._context.parameters
        if update.numbers.dtype.str != "<f4" or len(update.numbers) != parameters.dimension:
            raise Rejection(AbortReason.BAD_VECTOR, f"expected {parameters.dimension} float32 numbers")
        if not np.isfinite(update.numbers).all():
            raise Rejection(AbortReason.BAD_VECTOR, "the update is not finite")
        if not 1 <= update.weight <= parameters.encoding.max_weight:
            raise Rejection(AbortReason.OVER_BUDGET, f"a weight of {update.weight}")

    def deadline_passed(self, now: float) -> list[Event]:
        missing = tuple(name for name in self._context.session.members if name not in self._updates)
        return self.fail("deadline", TakerPhase.CLOSED, Failed(AbortReason.MISSING_UPLOAD, missing=missing))


class Giver(AttemptMachine):
    table = TransitionTable(
        "open-mean client",
        GiverPhase.TRAINING,
        {
            (GiverPhase.TRAINING, "training"): (GiverPhase.AWAITING_RESULT,),
            **{
                (phase, trigger): (GiverPhase.CLOSED,)
                for phase in (GiverPhase.TRAINING, GiverPhase.AWAITING_RESULT)
                for trigger in (RoundClosed, "deadline")
            },
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context.stamp)
        self._context = context

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.patience_s
        return self._context.train(self._give, now)

    def _give(self, trained: LocalResult, now: float) -> list[Event]:
        self.move("training", GiverPhase.AWAITING_RESULT, now + self._context.timing.patience_s)
        return [Send(SERVER, OpenUpdate(self.stamp, trained.samples, trained.payload))]

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        require_from_server(sender)
        self.move(RoundClosed, GiverPhase.CLOSED)
        self.outcome = outcome_of(closed, self._context.name)
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", GiverPhase.CLOSED, Failed(AbortReason.TIMED_OUT, SERVER))


@register
class OpenMean(Scheme):
    name = "open-mean"
    exact = False
    hides_updates = False
    default_min_parties = 1
    learns = {
        "server": "every individual update and the global model",
        "client": "the global model",
        "broker": "who talks when, and how much",
    }
    drop_points = {"upload": OpenUpdate}
    machines = {"open-mean server": Taker, "open-mean client": Giver}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return Taker(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return Giver(context)

    def carries(self, message: Message) -> Carried | None:
        return Carried(message.numbers, message.weight) if isinstance(message, OpenUpdate) else None
