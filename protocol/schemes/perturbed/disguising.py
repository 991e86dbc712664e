"""The server's part that both schemes share: disguise the model, announce the noise, answer questions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from veilsum.protocol.errors import AbortReason, LocalProtocolError, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Failed, ServerDesk, failure_of, require_absent
from veilsum.protocol.machines.events import Event, Send, WorkRequested
from veilsum.protocol.machines.session import RoundOpened, hash_model
from veilsum.protocol.perturbation.contract import Answer, Disguise, ServerNoise
from veilsum.protocol.perturbation.errors import ExchangeOverflow, PrecisionLost, TermTooLarge
from veilsum.protocol.schemes.perturbed.messages import NoiseAnnounced, SoftmaxAnswer, SoftmaxQuestion
from veilsum.protocol.wire.messages import Stamp


@dataclass(frozen=True)
class Drawn:
    """What the first job of an attempt makes."""

    disguise: Disguise = field(repr=False)
    model_hash: bytes


class Disguising:
    """One attempt's key and who has asked about it; the machine that owns it keeps the phases."""

    def __init__(self, desk: ServerDesk) -> None:
        if desk.noise is None:
            raise LocalProtocolError("the server of this scheme needs its noise: pass it to the machine")
        self.noise: ServerNoise = desk.noise
        self._desk = desk
        self._drawn: Drawn | None = None
        self._asked: set[PartyId] = set()
        self._too_loud = False

    @property
    def disguise(self) -> Disguise:
        assert self._drawn is not None
        return self._drawn.disguise

    def draw(self) -> Drawn:
        """A fresh key for every attempt. Heavy: runs away from the event loop."""
        desk = self._desk
        assert desk.model is not None
        disguise = self.noise.disguise(desk.model, desk.stamp.round, desk.random)
        return Drawn(disguise, hash_model(disguise.model))

    def adopt(self, drawn: Drawn) -> Stamp:
        """The stamp of the attempt: clients learn the hash of the disguised model, never that of the true one."""
        self._drawn = drawn
        return replace(self._desk.stamp, model_hash=drawn.model_hash)

    def announce(self, stamp: Stamp) -> list[Event]:
        opened, noise = (
            RoundOpened(stamp, self.disguise.model),
            NoiseAnnounced(stamp, self.disguise.public),
        )
        return [Send(name, message) for message in (opened, noise) for name in self._desk.session.members]

    def take_question(
        self,
        sender: PartyId,
        message: SoftmaxQuestion,
        still_open: Callable[[], bool],
        failed: Callable[[ProtocolError, float], list[Event]],
    ) -> list[Event]:
        """One question of each client; its answer is sent if the attempt still collects by then."""
        if not self.noise.asks:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "this noise needs no questions")
        require_absent(sender, self._asked)
        question, disguise, stamp, random = message.question, self.disguise, message.stamp, self._desk.random
        if question.key_id != disguise.public.key_id:
            raise Rejection(AbortReason.WRONG_ROUND, "the question was asked with a stale key")
        disguise.require_question(question)
        self._asked.add(sender)

        send = partial(self._send_answer, sender, stamp, still_open)
        return [WorkRequested(lambda: disguise.answer(question, random), send, failed)]

    def _send_answer(
        self, receiver: PartyId, stamp: Stamp, still_open: Callable[[], bool], answer: Answer, now: float
    ) -> list[Event]:
        return [Send(receiver, SoftmaxAnswer(stamp, answer))] if still_open() else []

    def hear_reason(self, reason: str) -> None:
        """A client that withdrew because of the noise lowers that of the next attempt, once, however many do.

        A liar can do the same. Gamma protects nothing that a liar could not get anyway, and it rises again.
        """
        if not self._too_loud and reason in (ExchangeOverflow.told, TermTooLarge.told):
            self._too_loud = True
            self.noise.adapt(math.inf)

    def failure(self, error: ProtocolError) -> Failed:
        """What a failed answer or recovery means; the next attempt has less noise if this one had too much."""
        if not isinstance(error, PrecisionLost | ExchangeOverflow):
            return failure_of(error)
        self.noise.adapt(error.condition if isinstance(error, PrecisionLost) else math.inf)
        return Failed(AbortReason.PRECISION_LOST, detail=str(error))
