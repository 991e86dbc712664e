"""A client's own work in one attempt, the same for both schemes: a public part, perhaps a request, all terms.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from functools import partial

from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.attempt import ParticipantContext, WhenTrained
from veilsum.protocol.machines.events import Event, Send, TrainingRequested, WorkRequested
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.perturbation.contract import Asked, ExchangeReply
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.schemes.perturbed.equipment import ClientPerturbation, client_equipment
from veilsum.protocol.schemes.perturbed.messages import SoftmaxRequest


class LocalTerms:
    """Requests the work, which hands the terms to `then`; whoever owns it keeps the phases."""

    def __init__(self, context: ParticipantContext) -> None:
        self.equipment: ClientPerturbation = client_equipment(context.equipment)
        self.public: PublicPerturbation | None = None
        self._context = context
        self._asked: Asked | None = None
        self._answered = False

    def require_public(self, public: PublicPerturbation) -> None:
        if self.public is not None:
            raise Rejection(AbortReason.REPLAY, "the perturbation of this attempt is known already")
        self.equipment.require_public(public)

    def begin(self, public: PublicPerturbation, then: WhenTrained) -> list[Event]:
        self.public = public
        if not self.equipment.asks:
            return [self._training(None, then)]
        context = self._context
        assert context.model is not None
        model, round_number, random = context.model, context.stamp.round, context.random

        def ask() -> Asked:
            return self.equipment.ask(model, public, round_number, random)

        return [WorkRequested(ask, self._send_request, self._withdraw)]

    def _send_request(self, asked: Asked, now: float) -> list[Event]:
        self._asked = asked
        return [Send(SERVER, SoftmaxRequest(self._context.stamp, asked.request))]

    def require_reply(self, reply: ExchangeReply) -> None:
        if self._asked is None or self._answered:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "a reply, and no request is open")
        if reply.key_id != self._asked.request.key_id:
            raise Rejection(AbortReason.WRONG_ROUND, "the request was answered with a stale key")

    def conclude(self, reply: ExchangeReply, then: WhenTrained) -> list[Event]:
        self._answered = True
        return [self._training(reply, then)]

    def _training(self, reply: ExchangeReply | None, then: WhenTrained) -> TrainingRequested:
        context, public, asked = self._context, self.public, self._asked
        assert context.model is not None and public is not None
        model, round_number = context.model, context.stamp.round

        def compute() -> LocalResult:
            return self.equipment.compute(model, public, round_number, asked, reply)

        return TrainingRequested(round_number, model, partial(self._finish, then), self._withdraw, compute)

    def _finish(self, then: WhenTrained, result: LocalResult, now: float) -> list[Event]:
        self._asked = None
        return then(self._context.parameters.weights.weigh(result), now)

    def _withdraw(self, error: ProtocolError, now: float) -> list[Event]:
        return self._context.withdraw(error, now)
