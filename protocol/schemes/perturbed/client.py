"""A client's side of one attempt of `perturbed`: terms on a perturbed model, uploaded as they are.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    ParticipantContext,
    handles,
    outcome_of,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.machines.transitions import Phase, TransitionTable
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.schemes.perturbed.local import LocalTerms
from veilsum.protocol.schemes.perturbed.messages import (
    PerturbationAnnounced,
    PerturbedTerms,
    SoftmaxReply,
    TermCheck,
    accept_all,
)


class PerturbedClientPhase(Phase):
    AWAITING_PERTURBATION = "awaiting-perturbation"
    COMPUTING = "computing"
    AWAITING_RESULT = "awaiting-result"
    CLOSED = "closed"


_P = PerturbedClientPhase
_OPEN = (_P.AWAITING_PERTURBATION, _P.COMPUTING, _P.AWAITING_RESULT)


class PerturbedClient(AttemptMachine):
    """A client's part of one round on a perturbed model."""

    table = TransitionTable(
        "perturbed client",
        _P.AWAITING_PERTURBATION,
        {
            (_P.AWAITING_PERTURBATION, PerturbationAnnounced): (_P.COMPUTING,),
            (_P.COMPUTING, SoftmaxReply): (_P.COMPUTING,),
            (_P.COMPUTING, "training"): (_P.AWAITING_RESULT,),
            **{(phase, RoundClosed): (_P.CLOSED,) for phase in _OPEN},
            **{(phase, "deadline"): (_P.CLOSED,) for phase in _OPEN},
        },
    )

    def __init__(self, context: ParticipantContext, require_terms: TermCheck = accept_all) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._require_terms = require_terms
        self._terms = LocalTerms(context)

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.patience_s
        return []

    @handles(PerturbationAnnounced)
    def learn_perturbation(self, sender: PartyId, message: PerturbationAnnounced, now: float) -> list[Event]:
        """Take the perturbed model of this attempt, and begin to compute."""
        require_from_server(sender)
        self._terms.require_public(message.public)
        self.move(PerturbationAnnounced, _P.COMPUTING, now + self._context.timing.patience_s)
        return self._terms.begin(message.public, self._report)

    @handles(SoftmaxReply)
    def learn_reply(self, sender: PartyId, message: SoftmaxReply, now: float) -> list[Event]:
        """Take the server's answer to what was asked, and go on."""
        require_from_server(sender)
        self._terms.require_reply(message.answer)
        self.move(SoftmaxReply, _P.COMPUTING, now + self._context.timing.patience_s)
        return self._terms.conclude(message.answer, self._report)

    def _report(self, result: LocalResult, now: float) -> list[Event]:
        public = self._terms.public
        assert public is not None
        try:
            self._require_terms(result.payload)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        self.move("training", _P.AWAITING_RESULT, now + self._context.timing.patience_s)
        upload = PerturbedTerms(self.stamp, public.key_id, public.digest, result.payload, result.samples)
        return [Send(SERVER, upload)]

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        """Take what became of the round."""
        require_from_server(sender)
        self.move(RoundClosed, _P.CLOSED)
        self.outcome = outcome_of(closed, self._context.name)
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
