"""FedAvg in the clear: the baseline everything else is compared with.

Every client uploads its payload and its sample count, and the server takes the weighted mean in float64, in
the order of names, so that the result does not depend on who was faster. The server sees everything. With
the schedule `round-robin` (SPN, Algorithm 4) clients train one after the other, each on the model the last
one left, and the round's result is the model of the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import Parameters, Schedule
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    NextPhase,
    ParticipantContext,
    ServerContext,
    failure_of,
    handles,
    outcome_of,
    require_absent,
    require_from_server,
)
from veilsum.protocol.machines.events import Event, Send, WorkRequested
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.session import RoundClosed, RoundOpened
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.averaging import weighted_mean
from veilsum.protocol.numbers.model import MODEL_WORD_BYTES, LocalResult, Model
from veilsum.protocol.schemes.registry import register
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Message, Stamp, Tensor, message


@message("plain.update")
@dataclass(frozen=True, slots=True)
class PlainUpdate(Message):
    stamp: Stamp
    payload: Tensor
    samples: int


class PlainServerPhase(Phase):
    COLLECTING = "collecting"
    AVERAGING = "averaging"
    CLOSED = "closed"


class PlainClientPhase(Phase):
    TRAINING = "training"
    AWAITING_RESULT = "awaiting-result"
    CLOSED = "closed"


class PlainUpdates:
    """What both schedules are about: the updates so far, each checked, and what they make of the attempt."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.received: dict[PartyId, PlainUpdate] = {}

    def require_sound(self, update: PlainUpdate) -> None:
        parameters = self._context.parameters
        if update.payload.dtype.str != "<f4" or len(update.payload) != parameters.dimension:
            raise Rejection(
                AbortReason.BAD_VECTOR, f"expected {parameters.dimension} float32 numbers, got {update!r}"
            )
        if not np.isfinite(update.payload).all():
            raise Rejection(AbortReason.BAD_VECTOR, "the update is not finite")
        if not 1 <= update.samples <= parameters.encoding.max_weight:
            raise Rejection(AbortReason.OVER_BUDGET, f"{update.samples} samples")

    def too_few(self) -> Failed | None:
        minimum = self._context.parameters.min_parties
        if len(self.received) >= minimum:
            return None
        missing = tuple(name for name in self._context.session.members if name not in self.received)
        return Failed(
            AbortReason.COHORT_TOO_SMALL,
            detail=f"{len(self.received)} updates, the agreed minimum is {minimum}; "
            f"missing: {', '.join(missing[:10])}",
            missing=missing,
        )

    def mean(self) -> NDArray[np.float64]:
        """In the order of names, so that the result does not depend on who was faster."""
        updates = [update for _, update in sorted(self.received.items())]
        return weighted_mean([one.payload for one in updates], [one.samples for one in updates])

    def committed(self, model: Model) -> Committed:
        return Committed(tuple(sorted(self.received)), model, hash_model(model))


class AveragingServer(AttemptMachine):
    """The schedule `fedavg`: all at once."""

    table = TransitionTable(
        "plain server",
        PlainServerPhase.COLLECTING,
        {
            (PlainServerPhase.COLLECTING, PlainUpdate): (
                PlainServerPhase.COLLECTING,
                PlainServerPhase.AVERAGING,
                PlainServerPhase.CLOSED,
            ),
            (PlainServerPhase.COLLECTING, "deadline"): (PlainServerPhase.AVERAGING, PlainServerPhase.CLOSED),
            (PlainServerPhase.COLLECTING, "loss"): (PlainServerPhase.AVERAGING, PlainServerPhase.CLOSED),
            (PlainServerPhase.AVERAGING, "work"): (PlainServerPhase.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._updates = PlainUpdates(context)
        self._awaited = set(context.session.members)

    def start(self, now: float) -> list[Event]:
        timing = self._context.timing
        self.deadline = now + timing.training_s + timing.phase_s
        return self._context.open_round()

    @handles(PlainUpdate)
    def collect(self, sender: PartyId, update: PlainUpdate, now: float) -> list[Event]:
        require_absent(sender, self._updates.received)
        self._updates.require_sound(update)
        self._updates.received[sender] = update
        return self._average(PlainUpdate) if self._complete else []

    @property
    def _complete(self) -> bool:
        return self._updates.received.keys() >= self._awaited

    def lose(self, party: PartyId, now: float) -> list[Event]:
        self._awaited.discard(party)
        collected = self.phase is PlainServerPhase.COLLECTING and self._complete
        return self._average("loss") if collected else []

    def deadline_passed(self, now: float) -> list[Event]:
        return self._average("deadline")

    def _average(self, trigger: Trigger) -> list[Event]:
        work = WorkRequested(self._next_model, self._averaged, self._not_averaged)
        found = self._updates.too_few() or NextPhase(PlainServerPhase.AVERAGING, [work])
        return self.follow(trigger, found, PlainServerPhase.CLOSED)

    def _next_model(self) -> Model:
        assert self._context.model is not None
        return self._context.next_model(self._context.model, self._updates.mean())

    def _averaged(self, model: Model, now: float) -> list[Event]:
        self.move("work", PlainServerPhase.CLOSED)
        self.outcome = self._updates.committed(model)
        return []

    def _not_averaged(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", PlainServerPhase.CLOSED, failure_of(error))


class RoundRobinServer(AttemptMachine):
    """The schedule `round-robin`: one after the other, in the order of names; silent ones lose their turn."""

    table = TransitionTable(
        "plain server, round-robin",
        PlainServerPhase.COLLECTING,
        {
            (PlainServerPhase.COLLECTING, PlainUpdate): (
                PlainServerPhase.COLLECTING,
                PlainServerPhase.CLOSED,
            ),
            (PlainServerPhase.COLLECTING, "deadline"): (PlainServerPhase.COLLECTING, PlainServerPhase.CLOSED),
            (PlainServerPhase.COLLECTING, "loss"): (PlainServerPhase.COLLECTING, PlainServerPhase.CLOSED),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        assert context.model is not None
        self._context = context
        self._updates = PlainUpdates(context)
        self._queue = list(context.session.members)
        self._model = context.model

    def start(self, now: float) -> list[Event]:
        return self._open_turn(now)

    @handles(PlainUpdate)
    def take_turn(self, sender: PartyId, update: PlainUpdate, now: float) -> list[Event]:
        if sender != self._queue[0]:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"it is the turn of {self._queue[0]}")
        self._updates.require_sound(update)
        model = self._context.next_model(self._model, update.payload.astype(np.float64))
        self._model, self._updates.received[sender] = model, update
        return self._next_turn(PlainUpdate, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        if self._queue and party == self._queue[0]:
            return self._next_turn("loss", now)
        self._queue = [name for name in self._queue if name != party]
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        return self._next_turn("deadline", now)

    def _next_turn(self, trigger: Trigger, now: float) -> list[Event]:
        self._queue.pop(0)
        if self._queue:
            self.move(trigger, PlainServerPhase.COLLECTING)
            return self._open_turn(now)
        too_few = self._updates.too_few()
        if too_few is not None:
            return self.fail(trigger, PlainServerPhase.CLOSED, too_few)
        self.move(trigger, PlainServerPhase.CLOSED)
        self.outcome = self._updates.committed(self._model)
        return []

    def _open_turn(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.training_s
        stamp = replace(self.stamp, model_hash=hash_model(self._model))
        return [Send(self._queue[0], RoundOpened(stamp, self._model))]


class PlainClient(AttemptMachine):
    table = TransitionTable(
        "plain client",
        PlainClientPhase.TRAINING,
        {
            (PlainClientPhase.TRAINING, "training"): (PlainClientPhase.AWAITING_RESULT,),
            (PlainClientPhase.TRAINING, "deadline"): (PlainClientPhase.CLOSED,),
            (PlainClientPhase.TRAINING, RoundClosed): (PlainClientPhase.CLOSED,),
            (PlainClientPhase.AWAITING_RESULT, RoundClosed): (PlainClientPhase.CLOSED,),
            (PlainClientPhase.AWAITING_RESULT, "deadline"): (PlainClientPhase.CLOSED,),
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context.stamp)
        self._context = context

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.patience_s
        return self._context.train(self._report, now)

    def _report(self, result: LocalResult, now: float) -> list[Event]:
        self.move("training", PlainClientPhase.AWAITING_RESULT, now + self._context.timing.patience_s)
        return [Send(SERVER, PlainUpdate(self.stamp, result.payload, result.samples))]

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        require_from_server(sender)
        self.move(RoundClosed, PlainClientPhase.CLOSED)
        self.outcome = outcome_of(closed, self._context.name)
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", PlainClientPhase.CLOSED, Failed(AbortReason.TIMED_OUT, SERVER))


@register
class Plain(Scheme):
    """Plain FedAvg, to compare with: the server sees every update."""

    name = "plain"
    exact = False
    hides_updates = False
    default_min_parties = 1
    learns = {
        "server": "every individual update and the global model",
        "client": "the global model",
        "broker": "who talks when, and how much",
    }
    drop_points = {"upload": PlainUpdate}
    machines = {
        "plain server": AveragingServer,
        "plain server, round-robin": RoundRobinServer,
        "plain client": PlainClient,
    }

    def server_round(self, context: ServerContext) -> AttemptMachine:
        if context.parameters.schedule is Schedule.ROUND_ROBIN:
            return RoundRobinServer(context)
        return AveragingServer(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return PlainClient(context)

    def carries(self, message: Message) -> Carried | None:
        return Carried(message.payload, message.samples) if isinstance(message, PlainUpdate) else None

    def most_vector_bytes(self, parameters: Parameters) -> int:
        return MODEL_WORD_BYTES * parameters.dimension

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        yield "plain: the server sees every update; gradient inversion can rebuild training data from it"
