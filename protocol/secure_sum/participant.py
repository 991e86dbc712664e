"""A participant's side of a sum that survives dropouts: what `masked` and `ampc` have in common.

    SHARING              shares of our secrets are with the server, those of the others are due
    MASKING              waiting for local training and for whatever else goes into the upload
    AWAITING_SURVIVORS   uploaded; the server must say who is in the sum
    VOTING               the list is signed; enough others must have signed it too
    REVEALING            (`ampc`, `mpc`) keys exchanged with the dropped are with the server, all of them are due
    AWAITING_RESULT      our shares are released, the sum is being opened

A scheme says what happens before the shares, what the upload is, and how the result comes back. From the
upload on a model has one update of ours. From the moment a sum with it may be opened, the round is spent:
another attempt gets our update for the very same sum only (protocol/machines/participation.py).
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    ParticipantContext,
    handles,
    require_from_server,
)
from veilsum.protocol.machines.events import Event, Send, Warned, WorkRequested
from veilsum.protocol.machines.transitions import Phase, Trigger
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.randomness import require_random
from veilsum.protocol.secure_sum.shares import DeliveredShares, SealedShares, ShareKeeper, ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorCheck, SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp

SEED_BYTES = 32


class SecureSumParticipantPhase(Phase):
    AWAITING_PERTURBATION = "awaiting-perturbation"
    ADVERTISING = "advertising"
    SHARING = "sharing"
    MASKING = "masking"
    AWAITING_SURVIVORS = "awaiting-survivors"
    VOTING = "voting"
    REVEALING = "revealing"
    AWAITING_RESULT = "awaiting-result"
    ADDING_BIAS = "adding-bias"
    CONFIRMING = "confirming"
    CLOSED = "closed"


_P = SecureSumParticipantPhase

SECURE_SUM_MOVES: dict[tuple[Phase, Trigger], tuple[Phase, ...]] = {
    (_P.SHARING, DeliveredShares): (_P.MASKING,),
    (_P.MASKING, "work"): (_P.AWAITING_SURVIVORS, _P.AWAITING_RESULT),
    (_P.AWAITING_SURVIVORS, SurvivorList): (_P.VOTING, _P.AWAITING_RESULT),
    **{(phase, SurvivorList): (phase,) for phase in (_P.VOTING, _P.AWAITING_RESULT)},
    (_P.VOTING, SurvivorProof): (_P.AWAITING_RESULT,),
}


class SecureSumParticipant(AttemptMachine):
    votes_when_semi_honest: ClassVar[bool] = False
    share_kinds: ClassVar[tuple[ShareKind, ...]] = (ShareKind.SELF_MASK,)

    def __init__(self, context: ParticipantContext, masking_stamp: Stamp) -> None:
        """`masking_stamp` is what mask keys are bound to: the stamp with the hash of the model we really hold."""
        super().__init__(context.stamp)
        self._context = context
        self._masking_stamp = masking_stamp
        self._recovers = context.parameters.recovery is Recovery.SHARES
        self._self_seed = Secret(require_random(context.random, SEED_BYTES))
        self._keeper: ShareKeeper | None = None
        self._check: SurvivorCheck | None = None
        self._trained: LocalResult | None = None
        self._requested_upload = False
        self._update = b""

    @abstractmethod
    def _masked_vector(self) -> RingVector:
        """The upload. Heavy: runs away from the event loop."""

    @property
    def _ready_to_mask(self) -> bool:
        """Whether everything that the upload needs, besides local training, is here."""
        return True

    def _droppable(self, sharers: frozenset[PartyId]) -> frozenset[PartyId]:
        """Those around us whose fate matters to our upload."""
        return sharers

    @property
    def _mask_graph(self) -> Graph:
        """Who shares a mask with whom that cancels in the sum."""
        return self._sharing_graph

    def _deal_shares(self, graph: Graph, secrets: dict[ShareKind, Secret]) -> list[Event]:
        context = self._context
        self._sharing_graph = graph
        self._keeper = ShareKeeper(
            context.name,
            context.box_key,
            context.session,
            self._masking_stamp,
            graph,
            context.parameters,
            self.share_kinds,
        )
        boxes = self._keeper.deal(secrets, context.random)
        return [Send(SERVER, SealedShares(self.stamp, boxes))]

    @handles(DeliveredShares)
    def keep_shares(self, sender: PartyId, message: DeliveredShares, now: float) -> list[Event]:
        require_from_server(sender)
        assert self._keeper is not None
        holders = self._sharing_graph.degree(self._context.name) + 1
        present, needed = len(message.boxes) + 1, self._context.parameters.threshold_of(holders)
        if present < needed:
            raise Rejection(
                AbortReason.COHORT_TOO_SMALL, f"{present} holders of our shares are left, {needed} are needed"
            )
        unusable = self._keeper.accept(message.boxes)
        sharers = self._keeper.sharers
        self._check = SurvivorCheck(
            self._context, self._sharing_graph, self._mask_graph, sharers, self._droppable(sharers)
        )
        self.move(DeliveredShares, _P.MASKING)
        warnings: list[Event] = [Warned(f"the share box of {name} does not open") for name in unusable]
        return warnings + self._upload_when_ready(now)

    def _train_finished(self, result: LocalResult, now: float) -> list[Event]:
        self._trained = result
        return self._upload_when_ready(now)

    def _upload_when_ready(self, now: float) -> list[Event]:
        self._wait(now)
        ready = self._trained is not None and self.phase is _P.MASKING and self._ready_to_mask
        if not ready or self._requested_upload:
            return []
        self._requested_upload = True
        return [WorkRequested(self._hashed_and_masked, self._upload, self._context.withdraw)]

    def _hashed_and_masked(self) -> RingVector:
        assert self._trained is not None
        hashed = hashlib.sha256(self._trained.samples.to_bytes(8, "big"))
        hashed.update(np.ascontiguousarray(self._trained.payload).data)
        self._update = hashed.digest()
        return self._masked_vector()

    def _upload(self, vector: RingVector, now: float) -> list[Event]:
        record, model_hash = self._context.record, self._masking_stamp.model_hash
        try:
            record.require_same_update(self.stamp.round, model_hash, self._update)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        self.move("work", _P.AWAITING_SURVIVORS if self._recovers else _P.AWAITING_RESULT)
        self._wait(now)
        events: list[Event] = [record.give(self.stamp, model_hash, self._update)]
        events += [] if self._recovers else self._spend(self._sharing_graph.parties)
        return [*events, Send(SERVER, MaskedInput(self.stamp, vector))]

    @handles(SurvivorList)
    def consider_survivors(self, sender: PartyId, message: SurvivorList, now: float) -> list[Event]:
        require_from_server(sender)
        if self._check is None:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "a survivor list, and nothing can be recovered")
        warnings = self._check.accept(message)
        if self._context.parameters.threat is Threat.LYING or self.votes_when_semi_honest:
            self.move(SurvivorList, _P.VOTING)
            self._wait(now)
            return [*warnings, Send(SERVER, self._check.sign())]
        return warnings + self._release(SurvivorList, now)

    @handles(SurvivorProof)
    def believe_survivors(self, sender: PartyId, message: SurvivorProof, now: float) -> list[Event]:
        require_from_server(sender)
        assert self._check is not None
        self._check.require_proof(message)
        return self._proved(self._check.agreed, now)

    def _proved(self, agreed: SurvivorList, now: float) -> list[Event]:
        """Enough others signed the list that we signed: no other list can count any more."""
        return self._release(SurvivorProof, now)

    def _release(self, trigger: type[Message], now: float) -> list[Event]:
        assert self._check is not None
        assert self._keeper is not None
        agreed = self._check.agreed
        released = self._keeper.release(self.stamp, agreed.survivors, agreed.dropped)
        self.move(trigger, _P.AWAITING_RESULT)
        self._wait(now)
        return [*self._spend(agreed.survivors), Send(SERVER, released)]

    def _spend(self, cohort: tuple[PartyId, ...]) -> list[Event]:
        """From here on a sum over this cohort may be open, whether we ever hear of it or not."""
        return [self._context.record.spend(self.stamp, cohort, self._sharing_graph.parties)]

    def deadline_passed(self, now: float) -> list[Event]:
        failed = Failed(AbortReason.TIMED_OUT, SERVER, f"while {self.phase.value}")
        return self.fail("deadline", _P.CLOSED, failed)

    def _wait(self, now: float) -> None:
        self.deadline = now + self._context.timing.patience_s
