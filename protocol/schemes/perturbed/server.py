"""The server's side of one attempt of `perturbed`: disguise, collect terms, recover the gradient, step.

Terms of single clients are seen as they are and added in float64 in the order of names, so the result does not
depend on who was faster. The true model never leaves the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    Committed,
    Failed,
    RoundMachine,
    ServerDesk,
    failure_of,
    handles,
    require_absent,
)
from veilsum.protocol.machines.events import Event, Model, Warned, WorkRequested
from veilsum.protocol.machines.session import hash_model
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.averaging import weighted_mean
from veilsum.protocol.perturbation.contract import Recovered, require_numbers
from veilsum.protocol.schemes.perturbed.disguising import Disguising, Drawn
from veilsum.protocol.schemes.perturbed.messages import PerturbedTerms, SoftmaxQuestion


class ServerPhase(Phase):
    DISGUISING = "disguising"
    COLLECTING = "collecting"
    RECOVERING = "recovering"
    CLOSED = "closed"


_P = ServerPhase


@dataclass(frozen=True)
class Stepped:
    model: Model = field(repr=False)
    model_hash: bytes
    recovered: Recovered


class PerturbedServer(RoundMachine):
    table = TransitionTable(
        "perturbed server",
        _P.DISGUISING,
        {
            (_P.DISGUISING, "work"): (_P.COLLECTING, _P.CLOSED),
            (_P.COLLECTING, SoftmaxQuestion): (_P.COLLECTING,),
            (_P.COLLECTING, PerturbedTerms): (_P.COLLECTING, _P.RECOVERING),
            (_P.COLLECTING, "work"): (_P.CLOSED,),
            (_P.COLLECTING, "deadline"): (_P.RECOVERING, _P.CLOSED),
            (_P.COLLECTING, "loss"): (_P.RECOVERING, _P.CLOSED),
            (_P.RECOVERING, "work"): (_P.CLOSED,),
        },
    )

    def __init__(self, desk: ServerDesk) -> None:
        super().__init__(desk.stamp)
        self._desk = desk
        self._disguising = Disguising(desk)
        self._awaited = set(desk.session.members)
        self._uploads: dict[PartyId, PerturbedTerms] = {}

    def start(self, now: float) -> list[Event]:
        return [WorkRequested(self._disguising.draw, self._open, self._not_opened)]

    def _open(self, drawn: Drawn, now: float) -> list[Event]:
        timing = self._desk.timing
        self.stamp = self._disguising.adopt(drawn)
        self.move("work", _P.COLLECTING, now + timing.training_s + timing.phase_s)
        return self._disguising.announce(self.stamp)

    def _not_opened(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, failure_of(error, repeatable=False))

    @handles(SoftmaxQuestion)
    def answer(self, sender: PartyId, message: SoftmaxQuestion, now: float) -> list[Event]:
        return self._disguising.take_question(
            sender, message, lambda: self.phase is _P.COLLECTING, self._not_answered
        )

    def _not_answered(self, error: ProtocolError, now: float) -> list[Event]:
        if self.phase is not _P.COLLECTING:
            return []
        return self.fail("work", _P.CLOSED, self._disguising.failure(error))

    @handles(PerturbedTerms)
    def collect(self, sender: PartyId, message: PerturbedTerms, now: float) -> list[Event]:
        require_absent(sender, self._uploads)
        self._require_upload(message)
        self._uploads[sender] = message
        return self._recover(PerturbedTerms) if self._uploads.keys() >= self._awaited else []

    def _require_upload(self, message: PerturbedTerms) -> None:
        public = self._disguising.disguise.public
        if message.key_id != public.key_id:
            raise Rejection(AbortReason.WRONG_ROUND, "terms were computed with a stale key")
        if message.public_digest != public.digest:
            raise Rejection(
                AbortReason.WRONG_CONFIG, "terms were computed with another partition of the outputs"
            )
        require_numbers(message.terms, "<f4", sum(self._disguising.noise.terms.values()), "the terms")
        if not 1 <= message.samples <= self._desk.parameters.encoding.max_weight:
            raise Rejection(AbortReason.OVER_BUDGET, f"{message.samples} samples")

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        self._disguising.hear_reason(reason)
        return super().hear_withdrawal(party, reason, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        self._awaited.discard(party)
        if self.phase is not _P.COLLECTING or not self._uploads.keys() >= self._awaited:
            return []
        return self._recover("loss")

    def deadline_passed(self, now: float) -> list[Event]:
        return self._recover("deadline")

    def _recover(self, trigger: Trigger) -> list[Event]:
        minimum = self._desk.parameters.min_parties
        if len(self._uploads) < minimum:
            missing = tuple(name for name in self._desk.session.members if name not in self._uploads)
            detail = (
                f"terms of {len(self._uploads)} parties, the agreed minimum is {minimum}; "
                f"missing: {', '.join(missing[:10])}"
            )
            failed = Failed(AbortReason.COHORT_TOO_SMALL, detail=detail, missing=missing)
            return self.fail(trigger, _P.CLOSED, failed)
        self.move(trigger, _P.RECOVERING)
        return [WorkRequested(self._step, self._stepped, self._not_stepped)]

    def _step(self) -> Stepped:
        assert self._desk.model is not None
        uploads = [upload for _, upload in sorted(self._uploads.items())]
        mean = weighted_mean([one.terms for one in uploads], [one.samples for one in uploads])
        recovered = self._disguising.disguise.recover(mean)
        model = self._desk.next_model(self._desk.model, recovered.mean)
        return Stepped(model, hash_model(model), recovered)

    def _stepped(self, stepped: Stepped, now: float) -> list[Event]:
        recovered = stepped.recovered
        self._disguising.noise.adapt(recovered.condition)
        self.move("work", _P.CLOSED)
        members = tuple(sorted(self._uploads))
        self.outcome = Committed(members, stepped.model, stepped.model_hash, loss=recovered.loss)
        return [] if recovered.warning is None else [Warned(recovered.warning)]

    def _not_stepped(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, self._disguising.failure(error))
