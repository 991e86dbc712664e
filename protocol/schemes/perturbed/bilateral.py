"""`bilateral`: the terms of `perturbed` under the zero-sum masks of `masked`, with its dropout recovery.

All terms travel in one vector, and every term has mask streams of its own, derived under its name. One stream for
all of them, as published "for simplicity", is read off wherever a term is zero by construction. Mask keys are bound
to the disguised model and to the public part of the noise: clients that were told different things get masks that
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
from veilsum.protocol.machines.attempt import Seat, ServerDesk, failure_of, handles, require_from_server
from veilsum.protocol.machines.events import Event, Warned, WorkRequested
from veilsum.protocol.machines.session import RoundClosed, hash_model
from veilsum.protocol.machines.transitions import TransitionTable
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.perturbation.contract import PublicPart, Reals
from veilsum.protocol.perturbation.errors import PrecisionLost, TermTooLarge
from veilsum.protocol.schemes.masked.client import MaskedClient
from veilsum.protocol.schemes.masked.server import MaskedServer, Opened
from veilsum.protocol.schemes.perturbed.disguising import Disguising, Drawn
from veilsum.protocol.schemes.perturbed.local import LocalTerms
from veilsum.protocol.schemes.perturbed.messages import NoiseAnnounced, SoftmaxAnswer, SoftmaxQuestion
from veilsum.protocol.secure_sum.participant import ParticipantPhase
from veilsum.protocol.secure_sum.server import ServerPhase
from veilsum.protocol.wire.messages import Stamp

_S = ServerPhase
_C = ParticipantPhase
_ANSWERING = (_S.GATHERING_KEYS, _S.GATHERING_SHARES, _S.COLLECTING)
_COMPUTING = (_C.ADVERTISING, _C.SHARING, _C.MASKING)


@dataclass(frozen=True)
class RecoveredSum(Opened):
    condition: float = 1.0
    warning: str | None = None


class BilateralServer(MaskedServer):
    table = TransitionTable(
        "bilateral server",
        _S.DISGUISING,
        {
            (_S.DISGUISING, "work"): (_S.GATHERING_KEYS, _S.CLOSED),
            **MaskedServer.table.moves,
            **{(phase, SoftmaxQuestion): (phase,) for phase in _ANSWERING},
            **{(phase, "work"): (_S.CLOSED,) for phase in _ANSWERING},
        },
    )

    def __init__(self, desk: ServerDesk) -> None:
        self._disguising = Disguising(desk)
        super().__init__(desk)

    @property
    def _vector_length(self) -> int:
        return self._desk.parameters.encoding.vector_length(sum(self._disguising.noise.terms.values()))

    @property
    def _mask_terms(self) -> Mapping[str, slice]:
        return mask_terms(self._disguising.noise.terms)

    @property
    def _masking_stamp(self) -> Stamp:
        return bound_stamp(self.stamp, self._disguising.disguise.public)

    def start(self, now: float) -> list[Event]:
        return [WorkRequested(self._disguising.draw, self._open, self._not_begun)]

    def _open(self, drawn: Drawn, now: float) -> list[Event]:
        self.stamp = self._disguising.adopt(drawn)
        self.move("work", _S.GATHERING_KEYS, now + self._desk.timing.phase_s)
        return self._disguising.announce(self.stamp)

    def _not_begun(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _S.CLOSED, failure_of(error, repeatable=False))

    @handles(SoftmaxQuestion)
    def answer(self, sender: PartyId, message: SoftmaxQuestion, now: float) -> list[Event]:
        return self._disguising.take_question(
            sender, message, lambda: self.phase in _ANSWERING, self._not_answered
        )

    def _not_answered(self, error: ProtocolError, now: float) -> list[Event]:
        if self.phase not in _ANSWERING:
            return []
        return self.fail("work", _S.CLOSED, self._disguising.failure(error))

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        self._disguising.hear_reason(reason)
        return super().hear_withdrawal(party, reason, now)

    def _make_model(self, mean: Reals, liars: tuple[PartyId, ...]) -> Opened:
        before = self._desk.model
        assert before is not None
        try:
            recovered = self._disguising.disguise.recover(mean)
        except PrecisionLost as lost:
            text = f"the round was closed without a step: {lost}"
            model = self._desk.next_model(before, None)
            return RecoveredSum(model, hash_model(model), self._total, liars, None, lost.condition, text)
        model = self._desk.next_model(before, recovered.mean)
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
        self._disguising.noise.adapt(opened.condition)
        warnings: list[Event] = [] if opened.warning is None else [Warned(opened.warning)]
        return warnings + super()._opened(opened, now)


class BilateralClient(MaskedClient):
    table = TransitionTable(
        "bilateral client",
        _C.AWAITING_NOISE,
        {
            (_C.AWAITING_NOISE, NoiseAnnounced): (_C.ADVERTISING,),
            (_C.AWAITING_NOISE, RoundClosed): (_C.CLOSED,),
            (_C.AWAITING_NOISE, "deadline"): (_C.CLOSED,),
            **MaskedClient.table.moves,
            **{(phase, SoftmaxAnswer): (phase,) for phase in _COMPUTING},
        },
    )

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._terms = LocalTerms(seat, self._train_finished)

    @property
    def _mask_terms(self) -> Mapping[str, slice]:
        return mask_terms(self._terms.noise.terms)

    def start(self, now: float) -> list[Event]:
        self._wait(now)
        return []

    @handles(NoiseAnnounced)
    def learn_noise(self, sender: PartyId, message: NoiseAnnounced, now: float) -> list[Event]:
        require_from_server(sender)
        self._terms.require_public(message.public)
        self._masking_stamp = bound_stamp(self.stamp, message.public)
        self.move(NoiseAnnounced, _C.ADVERTISING)
        self._wait(now)
        return [self._advertise(), *self._terms.begin(message.public)]

    @handles(SoftmaxAnswer)
    def learn_answer(self, sender: PartyId, message: SoftmaxAnswer, now: float) -> list[Event]:
        require_from_server(sender)
        self._terms.require_answer(message.answer)
        self._wait(now)
        return self._terms.conclude(message.answer)

    def _encoded(self) -> RingVector:
        assert self._trained is not None
        try:
            return super()._encoded()
        except EncodingError as error:
            found = list(_outside(self._terms.noise.terms, self._trained.payload, self._seat))
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
    """What mask keys are derived under: the attempt, the disguised model and the public part of the noise."""
    framed = length_prefixed(domain_tag("bilateral-masks"), stamp.model_hash, public.digest)
    return replace(stamp, model_hash=hashlib.sha256(framed).digest())


def _outside(lengths: Mapping[str, int], payload: np.ndarray, seat: Seat) -> Iterator[str]:
    """The names of the terms with a value that cannot be encoded."""
    clip = seat.parameters.encoding.clip
    start = 0
    for name, length in lengths.items():
        if not (np.abs(payload[start : start + length]) <= clip).all():
            yield name
        start += length
