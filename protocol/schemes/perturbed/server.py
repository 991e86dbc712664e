"""The server's side of one attempt of `perturbed`: perturb the model, collect terms, recover the gradient, step.

Terms of single clients are seen as they are and added in float64 in the order of names, so the result does not
depend on who was faster. The true model never leaves the server.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    ServerContext,
    failure_of,
    handles,
    require_absent,
)
from veilsum.protocol.machines.events import Event, Warned, WorkRequested
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.averaging import weighted_mean
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.perturbation.contract import RecoveredMean, require_numbers
from veilsum.protocol.schemes.perturbed.messages import PerturbedTerms, SoftmaxRequest, TermCheck, accept_all
from veilsum.protocol.schemes.perturbed.perturber import Drawn, ModelPerturber


class PerturbedServerPhase(Phase):
    PERTURBING = "perturbing"
    COLLECTING = "collecting"
    RECOVERING = "recovering"
    CLOSED = "closed"


_P = PerturbedServerPhase


@dataclass(frozen=True)
class Stepped:
    model: Model = field(repr=False)
    model_hash: bytes
    recovered: RecoveredMean


class PerturbedServer(AttemptMachine):
    """The server's part of one round on a perturbed model."""

    table = TransitionTable(
        "perturbed server",
        _P.PERTURBING,
        {
            (_P.PERTURBING, "work"): (_P.COLLECTING, _P.CLOSED),
            (_P.COLLECTING, SoftmaxRequest): (_P.COLLECTING,),
            (_P.COLLECTING, PerturbedTerms): (_P.COLLECTING, _P.RECOVERING, _P.CLOSED),
            (_P.COLLECTING, "work"): (_P.CLOSED,),
            (_P.COLLECTING, "deadline"): (_P.RECOVERING, _P.CLOSED),
            (_P.COLLECTING, "loss"): (_P.RECOVERING, _P.CLOSED),
            (_P.RECOVERING, "work"): (_P.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext, require_terms: TermCheck = accept_all) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._require_terms = require_terms
        self._perturber = ModelPerturber(context)
        self._awaited = set(context.session.members)
        self._uploads: dict[PartyId, PerturbedTerms] = {}

    def start(self, now: float) -> list[Event]:
        return [WorkRequested(self._perturber.draw, self._open, self._not_opened)]

    def _open(self, drawn: Drawn, now: float) -> list[Event]:
        timing = self._context.timing
        self.stamp = self._perturber.adopt(drawn)
        self.move("work", _P.COLLECTING, now + timing.training_s + timing.phase_s)
        return self._perturber.announce(self.stamp)

    def _not_opened(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, failure_of(error, repeatable=False))

    @handles(SoftmaxRequest)
    def answer(self, sender: PartyId, message: SoftmaxRequest, now: float) -> list[Event]:
        """Answer what a client asks in the middle of its work."""
        return self._perturber.take_request(
            sender, message, lambda: self.phase is _P.COLLECTING, self._not_answered
        )

    def _not_answered(self, error: ProtocolError, now: float) -> list[Event]:
        if self.phase is not _P.COLLECTING:
            return []
        return self.fail("work", _P.CLOSED, self._perturber.failure(error))

    @handles(PerturbedTerms)
    def collect(self, sender: PartyId, message: PerturbedTerms, now: float) -> list[Event]:
        """Take the terms of one client; with the last of them the mean is recovered."""
        require_absent(sender, self._uploads)
        self._require_upload(message)
        self._uploads[sender] = message
        return self._recover(PerturbedTerms) if self._uploads.keys() >= self._awaited else []

    def _require_upload(self, message: PerturbedTerms) -> None:
        self._perturber.perturbation.public.require_used(message.key_id, message.public_digest)
        require_numbers(message.terms, "<f4", sum(self._perturber.equipment.terms.values()), "the terms")
        if not 1 <= message.samples <= self._context.parameters.encoding.max_weight:
            raise Rejection(AbortReason.OVER_BUDGET, f"{message.samples} samples")
        self._require_terms(message.terms)

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        self._perturber.hear_reason(reason)
        return super().hear_withdrawal(party, reason, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        self._awaited.discard(party)
        if self.phase is not _P.COLLECTING or not self._uploads.keys() >= self._awaited:
            return []
        return self._recover("loss")

    def deadline_passed(self, now: float) -> list[Event]:
        return self._recover("deadline")

    def _recover(self, trigger: Trigger) -> list[Event]:
        minimum = self._context.parameters.min_parties
        if len(self._uploads) < minimum:
            missing = tuple(name for name in self._context.session.members if name not in self._uploads)
            detail = (
                f"terms of {len(self._uploads)} parties, the agreed minimum is {minimum}; "
                f"missing: {', '.join(missing[:10])}"
            )
            failed = Failed(AbortReason.COHORT_TOO_SMALL, detail=detail, missing=missing)
            return self.fail(trigger, _P.CLOSED, failed)
        self.move(trigger, _P.RECOVERING)
        return [WorkRequested(self._step, self._stepped, self._not_stepped)]

    def _step(self) -> Stepped:
        assert self._context.model is not None
        uploads = [upload for _, upload in sorted(self._uploads.items())]
        mean = weighted_mean([one.terms for one in uploads], [one.samples for one in uploads])
        recovered = self._perturber.perturbation.recover(mean)
        model = self._context.next_model(self._context.model, recovered.mean)
        return Stepped(model, hash_model(model), recovered)

    def _stepped(self, stepped: Stepped, now: float) -> list[Event]:
        recovered = stepped.recovered
        self._perturber.equipment.adapt(recovered.condition)
        self.move("work", _P.CLOSED)
        members = tuple(sorted(self._uploads))
        self.outcome = Committed(members, stepped.model, stepped.model_hash, loss=recovered.loss)
        return [] if recovered.warning is None else [Warned(recovered.warning)]

    def _not_stepped(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, self._perturber.failure(error))
