"""A participant's side of a sum that survives dropouts: what is given, what opens it (specs/protocol.md, section 2).

Two parts, without phases, that the machines of `masked`, `bilateral`, `ampc` and `mpc` are made of. From the upload on
a model has one update of ours. From the moment a sum with it may be opened, the round is spent: another attempt gets
our update for the very same sum only (protocol/machines/participation.py). Both decisions are durable before the
message that they are about leaves: they stand before it in the list of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import ParticipantContext
from veilsum.protocol.machines.events import Event, PartyNamed, Send, WorkRequested
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.randomness import require_random
from veilsum.protocol.secure_sum.shares import DeliveredShares, ShareKeeper, ShareKind, threshold_around
from veilsum.protocol.secure_sum.survivors import SurvivorCheck, SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput

SEED_BYTES = 32


def fresh_seed(context: ParticipantContext) -> Secret:
    return Secret(require_random(context.random, SEED_BYTES))


Mask: TypeAlias = Callable[[LocalResult], RingVector]
"""Turns the result of training into the upload. Heavy: it runs away from the event loop."""

Uploading: TypeAlias = Callable[[RingVector, float], list[Event]]
"""What follows when the upload is made."""


class OwnUpload:
    """Our update of one attempt: trained, masked once, and given under a durable decision."""

    def __init__(self, context: ParticipantContext) -> None:
        self._context = context
        self._requested = False
        self._update = b""
        self.trained: LocalResult | None = None

    def request(self, mask: Mask, then: Uploading) -> list[Event]:
        """The work that makes the upload: when training is done, and once."""
        if self.trained is None or self._requested:
            return []
        self._requested = True
        return [WorkRequested(partial(self._hashed_and_masked, mask), then, self._context.withdraw)]

    def _hashed_and_masked(self, mask: Mask) -> RingVector:
        assert self.trained is not None
        hashed = hashlib.sha256(self.trained.samples.to_bytes(8, "big"))
        hashed.update(np.ascontiguousarray(self.trained.payload).data)
        self._update = hashed.digest()
        return mask(self.trained)

    def require_same(self, model_hash: bytes) -> None:
        """Refuse to give another update at this model than we gave before."""
        self._context.record.require_same_update(self._context.stamp.round, model_hash, self._update)

    def give(
        self,
        vector: RingVector,
        model_hash: bytes,
        opened_with: tuple[PartyId, ...] | None = None,
        refused: tuple[PartyId, ...] = (),
    ) -> list[Event]:
        """Decide, then send. `opened_with`: nothing else will be asked of us before a sum over these is open."""
        stamp, record = self._context.stamp, self._context.record
        decisions: list[Event] = [record.give(stamp, model_hash, self._update)]
        decisions += [] if opened_with is None else [record.spend(stamp, opened_with, opened_with)]
        return [*decisions, Send(SERVER, MaskedInput(stamp, vector, refused))]


class ShareRecovery:
    """Shares dealt and kept, the one list that we signed, and what is released under it."""

    def __init__(self, context: ParticipantContext, share_graph: Graph, mask_graph: Graph) -> None:
        """Shares travel along `share_graph`, masks that cancel along `mask_graph`."""
        self._context = context
        self._share_graph = share_graph
        self._mask_graph = mask_graph
        self._keeper = ShareKeeper(context, share_graph)
        self._check: SurvivorCheck | None = None

    @property
    def sharers(self) -> frozenset[PartyId]:
        return self._keeper.sharers

    @property
    def refused(self) -> tuple[PartyId, ...]:
        return self._keeper.refused

    def deal(self, secrets: Mapping[ShareKind, Secret]) -> Event:
        return Send(SERVER, self._keeper.deal(secrets))

    def keep(self, delivered: DeliveredShares, concerned: frozenset[PartyId] | None = None) -> list[Event]:
        """Keep the shares of others, and name those who dealt us others than they signed.

        `concerned` are those a list must name, else the ones who dealt us shares.
        """
        needed = threshold_around(self._context.parameters, self._share_graph, self._context.name)
        present = len(delivered.boxes) + 1
        if present < needed:
            raise Rejection(
                AbortReason.COHORT_TOO_SMALL, f"{present} holders of our shares are left, {needed} are needed"
            )
        self._keeper.accept(delivered.boxes)
        sharers = self._keeper.sharers
        self._check = SurvivorCheck(
            self._context,
            self._share_graph,
            self._mask_graph,
            sharers,
            sharers if concerned is None else concerned,
        )
        detail = f"dealt {self._context.name} a box without the shares that it signed"
        return [PartyNamed(name, AbortReason.BAD_SHARE, detail) for name in self._keeper.refused]

    def consider(self, proposed: SurvivorList) -> list[Event]:
        """Adopt the list, or raise; returns warnings."""
        return self._checked.accept(proposed)

    def sign(self) -> Event:
        return Send(SERVER, self._checked.sign())

    def believe(self, proof: SurvivorProof) -> SurvivorList:
        """The list that we signed, now that enough others have: no other can count any more."""
        self._checked.require_proof(proof)
        return self._checked.agreed

    def release(self) -> list[Event]:
        """Decide, then send: from here on a sum over this cohort may be open, whether we ever hear of it or not."""
        agreed, stamp = self._checked.agreed, self._context.stamp
        released = self._keeper.release(stamp, agreed.survivors, agreed.dropped)
        spent = self._context.record.spend(
            stamp, agreed.survivors, self._share_graph.parties, agreed.voucher, agreed.named
        )
        return [spent, Send(SERVER, released)]

    @property
    def survivors(self) -> tuple[PartyId, ...] | None:
        """Those whose sum may have been opened with our consent."""
        accepted = self._check.accepted if self._check is not None else None
        return accepted.survivors if accepted is not None else None

    @property
    def _checked(self) -> SurvivorCheck:
        assert self._check is not None
        return self._check


def require_recovery(recovery: ShareRecovery | None) -> ShareRecovery:
    """Refuse what makes sense with recovery only."""
    if recovery is None:
        raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "a survivor list, and nothing can be recovered")
    return recovery
