"""`bilateral`: the terms of `perturbed` under the zero-sum masks of `masked`, with its dropout recovery.

All terms travel in one vector, and every term has mask streams of its own, derived under its name. One stream for
all of them, as published "for simplicity", is read off wherever a term is zero by construction. Mask keys are bound
to the perturbed model and to the public part of the perturbation: clients that were told different things get masks
that do not cancel, and the check coordinate shows it.

A sum that was opened cannot be opened again. So when recovery would return nothing but rounding, the round is closed
with the model as it was, and the next one is perturbed less.

Both machines run the round of `masked` (its `MaskedRound` and `MaskedMember`) with a payload of their own, and do
before and beside it what the perturbation asks for: specs/protocol.md, sections 3 and 5, and specs/perturbation.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import EncodingError, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    NextPhase,
    ParticipantContext,
    ServerContext,
    handles,
    outcome_of,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import Event, Warned, WorkRequested
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.errors import PrecisionLost, TermTooLarge
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.schemes.masked.client import MASKED_CLIENT_MOVES, MaskedClientPhase, MaskedMember
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.schemes.masked.payload import OpenedSum, SteppedModel
from veilsum.protocol.schemes.masked.round import MASKED_SERVER_MOVES, MaskedRound, MaskedServerPhase
from veilsum.protocol.schemes.perturbed.local import LocalTerms
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced, SoftmaxReply, SoftmaxRequest
from veilsum.protocol.schemes.perturbed.perturber import Drawn, ModelPerturber
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof, SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp

_S = MaskedServerPhase
_C = MaskedClientPhase
_ANSWERING = (_S.GATHERING_KEYS, _S.GATHERING_SHARES, _S.COLLECTING)
_COMPUTING = (_C.ADVERTISING, _C.SHARING, _C.MASKING)


class BilateralServerPhase(Phase):
    """What comes before the phases of `masked`, which follow as they are."""

    PERTURBING = "perturbing"


class BilateralClientPhase(Phase):
    """What comes before the phases of `masked`, which follow as they are."""

    AWAITING_PERTURBATION = "awaiting-perturbation"


@dataclass(frozen=True)
class RecoveryQuality:
    """How well the mean gradient was recovered: the condition number, and what there is to say about it."""

    condition: float
    warning: str | None


class TermMean:
    """The mean of all terms, and the true gradient recovered from it; its sums carry no tags."""

    tag_words = 0

    def __init__(self, context: ServerContext, perturber: ModelPerturber) -> None:
        self._context = context
        self._perturber = perturber
        terms = perturber.equipment.terms
        self.length = context.parameters.encoding.vector_length(sum(terms.values()))
        self.mask_terms: Mapping[str, slice] = mask_terms(terms)

    def bound(self, stamp: Stamp) -> Stamp:
        return bound_stamp(stamp, self._perturber.perturbation.public)

    def step(self, mean: Reals) -> SteppedModel:
        before = self._context.model
        assert before is not None
        try:
            found = self._perturber.perturbation.recover(mean)
        except PrecisionLost as lost:
            text = f"the round was closed without a step: {lost}"
            model = self._context.next_model(before, None)
            return SteppedModel(model, hash_model(model), extra=RecoveryQuality(lost.condition, text))
        model = self._context.next_model(before, found.mean)
        quality = RecoveryQuality(found.condition, found.warning)
        return SteppedModel(model, hash_model(model), found.loss, quality)


class BilateralServer(AttemptMachine):
    table = TransitionTable(
        "bilateral server",
        BilateralServerPhase.PERTURBING,
        {
            (BilateralServerPhase.PERTURBING, "work"): (_S.GATHERING_KEYS, _S.CLOSED),
            **MASKED_SERVER_MOVES,
            **{(phase, SoftmaxRequest): (phase,) for phase in _ANSWERING},
            **{(phase, "work"): (_S.CLOSED,) for phase in _ANSWERING},
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._perturber = ModelPerturber(context)
        self._round = MaskedRound(context, TermMean(context, self._perturber))

    def start(self, now: float) -> list[Event]:
        return [WorkRequested(self._perturber.draw, self._open, self._not_begun)]

    def _open(self, drawn: Drawn, now: float) -> list[Event]:
        self.stamp = self._round.stamp = self._perturber.adopt(drawn)
        self.move("work", _S.GATHERING_KEYS, now + self._context.timing.phase_s)
        return self._perturber.announce(self.stamp)

    def _not_begun(self, error: ProtocolError, now: float) -> list[Event]:
        """Nothing was perturbed, or nothing was opened: there is no other way to this round's model."""
        return self.fail("work", _S.CLOSED, self._round.failed(error))

    @handles(SoftmaxRequest)
    def answer(self, sender: PartyId, message: SoftmaxRequest, now: float) -> list[Event]:
        return self._perturber.take_request(
            sender, message, lambda: self.phase in _ANSWERING, self._not_answered
        )

    def _not_answered(self, error: ProtocolError, now: float) -> list[Event]:
        if self.phase not in _ANSWERING:
            return []
        return self.fail("work", _S.CLOSED, self._perturber.failure(error))

    @handles(RoundKeys, SealedShares, MaskedInput, SurvivorSignature, ReleasedShares)
    def take(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        return self._go_on(type(message), self._round.take(self.phase, sender, message, now))

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        self._perturber.hear_reason(reason)
        return self.lose(party, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        return self._go_on("loss", self._round.lose(self.phase, party, now))

    def deadline_passed(self, now: float) -> list[Event]:
        return self._go_on("deadline", self._round.close(self.phase, now))

    def _go_on(self, trigger: Trigger, found: NextPhase | Failed | None) -> list[Event]:
        going_on = self.follow(trigger, found, _S.CLOSED)
        return [*going_on, *self._round.opening(found, self._opened, self._not_begun)]

    def _opened(self, opened: OpenedSum, now: float) -> list[Event]:
        quality = opened.stepped.extra
        assert isinstance(quality, RecoveryQuality)
        self._perturber.equipment.adapt(quality.condition)
        self.move("work", _S.CLOSED)
        self.outcome = self._round.committed(opened)
        told: list[Event] = [] if quality.warning is None else [Warned(quality.warning)]
        return told


class TermUpload:
    """All terms of one client end to end, each under streams of its own name."""

    def __init__(self, context: ParticipantContext, terms: LocalTerms) -> None:
        self._context = context
        self._terms = terms
        self.mask_terms: Mapping[str, slice] = mask_terms(terms.equipment.terms)

    def bound(self, stamp: Stamp) -> Stamp:
        assert self._terms.public is not None
        return bound_stamp(stamp, self._terms.public)

    def encode(self, trained: LocalResult) -> RingVector:
        try:
            return self._context.parameters.encoding.encode(trained.payload, trained.samples)
        except EncodingError as error:
            found = list(_outside(self._terms.equipment.terms, trained.payload, self._context))
            if not found:
                raise
            raise TermTooLarge(found[0], error) from error


class BilateralClient(AttemptMachine):
    table = TransitionTable(
        "bilateral client",
        BilateralClientPhase.AWAITING_PERTURBATION,
        {
            (BilateralClientPhase.AWAITING_PERTURBATION, PerturbationAnnounced): (_C.ADVERTISING,),
            (BilateralClientPhase.AWAITING_PERTURBATION, RoundClosed): (_C.CLOSED,),
            (BilateralClientPhase.AWAITING_PERTURBATION, "deadline"): (_C.CLOSED,),
            **MASKED_CLIENT_MOVES,
            **{(phase, SoftmaxReply): (phase,) for phase in _COMPUTING},
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._terms = LocalTerms(context)
        self._round = MaskedMember(context, TermUpload(context, self._terms))

    def start(self, now: float) -> list[Event]:
        self._wait(now)
        return []

    def _wait(self, now: float) -> None:
        self.deadline = now + self._context.timing.patience_s

    @handles(PerturbationAnnounced)
    def learn_perturbation(self, sender: PartyId, message: PerturbationAnnounced, now: float) -> list[Event]:
        require_from_server(sender)
        self._terms.require_public(message.public)
        self.move(PerturbationAnnounced, _C.ADVERTISING)
        self._wait(now)
        return [self._round.advertise(), *self._terms.begin(message.public, self._terms_computed)]

    @handles(SoftmaxReply)
    def learn_reply(self, sender: PartyId, message: SoftmaxReply, now: float) -> list[Event]:
        require_from_server(sender)
        self._terms.require_reply(message.answer)
        self._wait(now)
        return self._terms.conclude(message.answer, self._terms_computed)

    def _terms_computed(self, result: LocalResult, now: float) -> list[Event]:
        self._wait(now)
        self._round.take_trained(result)
        return self._round.make_upload(self.phase, self._upload)

    @handles(CohortKeys, DeliveredShares, SurvivorList, SurvivorProof)
    def take(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        require_from_server(sender)
        found = self.follow(type(message), self._round.take(message, now), _C.CLOSED)
        return [*found, *self._round.make_upload(self.phase, self._upload)]

    def _upload(self, vector: RingVector, now: float) -> list[Event]:
        try:
            return self.follow("work", self._round.give(vector, now), _C.CLOSED)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", _C.CLOSED, server_was_silent(self.phase))

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        require_from_server(sender)
        if closed.committed:
            self._round.require_agreed(self.phase, closed.members)
        self.move(RoundClosed, _C.CLOSED)
        self.outcome = outcome_of(closed, self._context.name)
        return []


def mask_terms(lengths: Mapping[str, int]) -> dict[str, slice]:
    """Where each term lies in an upload; the weight and the check coordinate have masks of their own."""
    places: dict[str, slice] = {}
    start = 0
    for name, length in {**lengths, "weight": EXTRA_COORDINATES}.items():
        places[name] = slice(start, start + length)
        start += length
    return places


def bound_stamp(stamp: Stamp, public: PublicPerturbation) -> Stamp:
    """What mask keys are derived under: the attempt, the perturbed model and the public part of the perturbation."""
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
