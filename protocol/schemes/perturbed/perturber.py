"""The server's part that both schemes share: perturb the model, announce the perturbation, answer requests.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Failed, ServerContext, failure_of, require_absent
from veilsum.protocol.machines.events import Event, Send, WorkRequested
from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.perturbation.contract import ExchangeReply
from veilsum.protocol.perturbation.errors import ExchangeOverflow, PrecisionLost, TermTooLarge
from veilsum.protocol.schemes.perturbed.equipment import Perturbation, ServerPerturbation, server_equipment
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced, SoftmaxReply, SoftmaxRequest
from veilsum.protocol.wire.messages import Stamp


@dataclass(frozen=True)
class Drawn:
    """What the first job of an attempt makes."""

    perturbation: Perturbation = field(repr=False)
    model_hash: bytes


class ModelPerturber:
    """One attempt's key and who has asked about it; the machine that owns it keeps the phases."""

    def __init__(self, context: ServerContext) -> None:
        self.equipment: ServerPerturbation = server_equipment(context.equipment)
        self._context = context
        self._drawn: Drawn | None = None
        self._asked: set[PartyId] = set()
        self._too_loud = False

    @property
    def perturbation(self) -> Perturbation:
        assert self._drawn is not None
        return self._drawn.perturbation

    def draw(self) -> Drawn:
        """A fresh key for every attempt. Heavy: runs away from the event loop."""
        context = self._context
        assert context.model is not None
        perturbation = self.equipment.perturb(context.model, context.stamp.round, context.random)
        return Drawn(perturbation, hash_model(perturbation.model))

    def adopt(self, drawn: Drawn) -> Stamp:
        """The stamp of the attempt: clients learn the hash of the perturbed model, never that of the true one."""
        self._drawn = drawn
        return replace(self._context.stamp, model_hash=drawn.model_hash)

    def announce(self, stamp: Stamp) -> list[Event]:
        opened, announced = (
            RoundOpened(stamp, self.perturbation.model),
            PerturbationAnnounced(stamp, self.perturbation.public),
        )
        return [
            Send(name, message) for message in (opened, announced) for name in self._context.session.members
        ]

    def take_request(
        self,
        sender: PartyId,
        message: SoftmaxRequest,
        still_open: Callable[[], bool],
        failed: Callable[[ProtocolError, float], list[Event]],
    ) -> list[Event]:
        """One request of each client; its reply is sent if the attempt still collects by then."""
        if not self.equipment.asks:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "this perturbation needs no exchange")
        require_absent(sender, self._asked)
        request, perturbation, stamp, random = (
            message.question,
            self.perturbation,
            message.stamp,
            self._context.random,
        )
        if request.key_id != perturbation.public.key_id:
            raise Rejection(AbortReason.WRONG_ROUND, "the request was made with a stale key")
        perturbation.require_request(request)
        self._asked.add(sender)

        send = partial(self._send_reply, sender, stamp, still_open)
        return [WorkRequested(lambda: perturbation.answer(request, random), send, failed)]

    def _send_reply(
        self,
        receiver: PartyId,
        stamp: Stamp,
        still_open: Callable[[], bool],
        reply: ExchangeReply,
        now: float,
    ) -> list[Event]:
        return [Send(receiver, SoftmaxReply(stamp, reply))] if still_open() else []

    def hear_reason(self, reason: str) -> None:
        """A client that withdrew because of the perturbation lowers that of the next attempt, once, however many do.

        A liar can do the same. Gamma hides nothing that a liar could not get anyway, and it rises again.
        """
        if not self._too_loud and reason in (ExchangeOverflow.told, TermTooLarge.told):
            self._too_loud = True
            self.equipment.adapt(math.inf)

    def failure(self, error: ProtocolError) -> Failed:
        """What a failed reply or recovery means; the next attempt is perturbed less if this one was too much."""
        if not isinstance(error, PrecisionLost | ExchangeOverflow):
            return failure_of(error)
        self.equipment.adapt(error.condition if isinstance(error, PrecisionLost) else math.inf)
        return Failed(AbortReason.PRECISION_LOST, detail=str(error))
