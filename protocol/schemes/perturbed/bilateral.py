"""`bilateral`: the terms of `perturbed` under the zero-sum masks of `masked`, with its dropout recovery.

All terms travel in one vector, and every term has mask streams of its own, derived under its name. One stream for
all of them, as published "for simplicity", is read off wherever a term is zero by construction. Mask keys are bound
to the perturbed model and to the public part of the noise: clients that were told different things get masks that
do not cancel, and the check coordinate shows it.

A sum that was opened cannot be opened again. So when recovery would return nothing but rounding, the round is closed
with the model as it was, and the next one has less noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import EncodingError, ProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    ParticipantContext,
    ServerContext,
    failure_of,
    handles,
    require_from_server,
)
from veilsum.protocol.machines.events import Event, Warned, WorkRequested
from veilsum.protocol.machines.session import RoundClosed, hash_model
from veilsum.protocol.machines.transitions import TransitionTable
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.perturbation.contract import PublicPart, Reals
from veilsum.protocol.perturbation.errors import PrecisionLost, TermTooLarge
from veilsum.protocol.schemes.masked.client import MaskedClient
from veilsum.protocol.schemes.masked.server import MaskedServer, Opened
from veilsum.protocol.schemes.perturbed.local import LocalTerms
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced, SoftmaxReply, SoftmaxRequest
from veilsum.protocol.schemes.perturbed.perturber import Drawn, ModelPerturber
from veilsum.protocol.secure_sum.participant import SecureSumParticipantPhase
from veilsum.protocol.secure_sum.server import SecureSumServerPhase
from veilsum.protocol.wire.messages import Stamp

_S = SecureSumServerPhase
_C = SecureSumParticipantPhase
_ANSWERING = (_S.GATHERING_KEYS, _S.GATHERING_SHARES, _S.COLLECTING)
_COMPUTING = (_C.ADVERTISING, _C.SHARING, _C.MASKING)


@dataclass(frozen=True)
class RecoveredSum(Opened):
    condition: float = 1.0
    warning: str | None = None


class BilateralServer(MaskedServer):
    table = TransitionTable(
        "bilateral server",
        _S.PERTURBING,
        {
            (_S.PERTURBING, "work"): (_S.GATHERING_KEYS, _S.CLOSED),
            **MaskedServer.table.moves,
            **{(phase, SoftmaxRequest): (phase,) for phase in _ANSWERING},
            **{(phase, "work"): (_S.CLOSED,) for phase in _ANSWERING},
        },
    )

    def __init__(self, context: ServerContext) -> None:
        self._perturber = ModelPerturber(context)
        super().__init__(context)

    @property
    def _vector_length(self) -> int:
        return self._context.parameters.encoding.vector_length(sum(self._perturber.equipment.terms.values()))

    @property
    def _mask_terms(self) -> Mapping[str, slice]:
        return mask_terms(self._perturber.equipment.terms)

    @property
    def _masking_stamp(self) -> Stamp:
        return bound_stamp(self.stamp, self._perturber.perturbation.public)

    def start(self, now: float) -> list[Event]:
        return [WorkRequested(self._perturber.draw, self._open, self._not_begun)]

    def _open(self, drawn: Drawn, now: float) -> list[Event]:
        self.stamp = self._perturber.adopt(drawn)
        self.move("work", _S.GATHERING_KEYS, now + self._context.timing.phase_s)
        return self._perturber.announce(self.stamp)

    def _not_begun(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _S.CLOSED, failure_of(error, repeatable=False))

    @handles(SoftmaxRequest)
    def answer(self, sender: PartyId, message: SoftmaxRequest, now: float) -> list[Event]:
        return self._perturber.take_question(
            sender, message, lambda: self.phase in _ANSWERING, self._not_answered
        )

    def _not_answered(self, error: ProtocolError, now: float) -> list[Event]:
        if self.phase not in _ANSWERING:
            return []
        return self.fail("work", _S.CLOSED, self._perturber.failure(error))

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        self._perturber.hear_reason(reason)
        return super().hear_withdrawal(party, reason, now)

    def _make_model(self, mean: Reals, liars: tuple[PartyId, ...]) -> Opened:
        before = self._context.model
        assert before is not None
        try:
            recovered = self._perturber.perturbation.recover(mean)
        except PrecisionLost as lost:
            text = f"the round was closed without a step: {lost}"
            model = self._context.next_model(before, None)
            return RecoveredSum(model, hash_model(model), self._total, liars, None, lost.condition, text)
        model = self._context.next_model(before, recovered.mean)
        return RecoveredSum(
            model,
            hash_model(model),
            self._total,
            liars,
            recovered.loss,
            recovered.condition,
            recovered.warning,
        )

    def _opened(self, opened: Opened, now: float) -> list[Event]:
        assert isinstance(opened, RecoveredSum)
        self._perturber.equipment.adapt(opened.condition)
        warnings: list[Event] = [] if opened.warning is None else [Warned(opened.warning)]
        return warnings + super()._opened(opened, now)


class BilateralClient(MaskedClient):
    table = TransitionTable(
        "bilateral client",
        _C.AWAITING_PERTURBATION,
        {
            (_C.AWAITING_PERTURBATION, PerturbationAnnounced): (_C.ADVERTISING,),
            (_C.AWAITING_PERTURBATION, RoundClosed): (_C.CLOSED,),
            (_C.AWAITING_PERTURBATION, "deadline"): (_C.CLOSED,),
            **MaskedClient.table.moves,
            **{(phase, SoftmaxReply): (phase,) for phase in _COMPUTING},
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context)
        self._terms = LocalTerms(context, self._train_finished)

    @property
    def _mask_terms(self) -> Mapping[str, slice]:
        return mask_terms(self._terms.equipment.terms)

    def start(self, now: float) -> list[Event]:
        self._wait(now)
        return []

    @handles(PerturbationAnnounced)
    def learn_noise(self, sender: PartyId, message: PerturbationAnnounced, now: float) -> list[Event]:
        require_from_server(sender)
        self._terms.require_public(message.public)
        self._masking_stamp = bound_stamp(self.stamp, message.public)
        self.move(PerturbationAnnounced, _C.ADVERTISING)
        self._wait(now)
        return [self._advertise(), *self._terms.begin(message.public)]

    @handles(SoftmaxReply)
    def learn_answer(self, sender: PartyId, message: SoftmaxReply, now: float) -> list[Event]:
        require_from_server(sender)
        self._terms.require_answer(message.answer)
        self._wait(now)
        return self._terms.conclude(message.answer)

    def _encoded(self) -> RingVector:
        assert self._trained is not None
        try:
            return super()._encoded()
        except EncodingError as error:
            found = list(_outside(self._terms.equipment.terms, self._trained.payload, self._context))
            if not found:
                raise
            raise TermTooLarge(found[0], error) from error


def mask_terms(lengths: Mapping[str, int]) -> dict[str, slice]:
    """Where each term lies in an upload; the weight and the check coordinate have masks of their own."""
    places: dict[str, slice] = {}
    start = 0
    for name, length in {**lengths, "weight": EXTRA_COORDINATES}.items():
        places[name] = slice(start, start + length)
        start += length
    return places


def bound_stamp(stamp: Stamp, public: PublicPart) -> Stamp:
    """What mask keys are derived under: the attempt, the perturbed model and the public part of the noise."""
    framed = length_prefixed(domain_tag("bilateral-masks"), stamp.model_hash, public.digest)
    return replace(stamp, model_hash=hashlib.sha256(framed).digest())


def _outside(lengths: Mapping[str, int], payload: np.ndarray, context: ParticipantContext) -> Iterator[str]:
    """The names of the terms with a value that cannot be encoded."""
    clip = context.parameters.encoding.clip
    start = 0
    for name, length in lengths.items():
        if not (np.abs(payload[start : start + length]) <= clip).all():
            yield name
        start += length
