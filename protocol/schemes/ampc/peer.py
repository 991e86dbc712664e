"""A peer's side of one attempt of AMPC or MPC."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.agreed.parameters import ShareMode
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import KeyContext, Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph, complete
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    Committed,
    Failed,
    ParticipantContext,
    handles,
    require_absent,
    require_from_server,
)
from veilsum.protocol.machines.events import Event, Send, WorkRequested
from veilsum.protocol.machines.session import hash_model
from veilsum.protocol.machines.transitions import TransitionTable, Trigger
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.schemes.ampc.decomposition import (
    EpochSecrets,
    add_biases_back,
    keyed_model_hash,
    share_key,
    subtracted_biases,
)
from veilsum.protocol.schemes.ampc.messages import (
    Aggregate,
    ResultDigest,
    SeedsComplete,
    SeedsRevealed,
    ShareVector,
)
from veilsum.protocol.secure_sum.masking import self_mask_key
from veilsum.protocol.secure_sum.participant import (
    SECURE_SUM_MOVES,
    SecureSumParticipant,
    SecureSumParticipantPhase,
)
from veilsum.protocol.secure_sum.shares import ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof, check_differencing

_P = SecureSumParticipantPhase
_BEFORE_RESULT = (
    _P.SHARING,
    _P.MASKING,
    _P.AWAITING_SURVIVORS,
    _P.VOTING,
    _P.REVEALING,
    _P.AWAITING_RESULT,
    _P.ADDING_BIAS,
)


@dataclass(frozen=True)
class Result:
    """What a peer computed from the aggregate."""

    total: RingVector
    model: Model
    model_hash: bytes
    digest: ResultDigest


class AmpcPeer(SecureSumParticipant):
    votes_when_semi_honest = True
    table = TransitionTable(
        "ampc peer",
        _P.SHARING,
        {
            (_P.SHARING, "start"): (_P.MASKING,),
            **SECURE_SUM_MOVES,
            **{(phase, ShareVector): (phase,) for phase in (_P.SHARING, _P.MASKING)},
            (_P.VOTING, SurvivorProof): (_P.REVEALING, _P.AWAITING_RESULT),
            (_P.REVEALING, SurvivorList): (_P.REVEALING,),
            (_P.REVEALING, SeedsComplete): (_P.AWAITING_RESULT,),
            (_P.AWAITING_RESULT, Aggregate): (_P.ADDING_BIAS,),
            (_P.ADDING_BIAS, "work"): (_P.CONFIRMING,),
            (_P.CONFIRMING, "comparison"): (_P.CLOSED,),
            **{(phase, ResultDigest): (phase,) for phase in _BEFORE_RESULT},
            (_P.CONFIRMING, ResultDigest): (_P.CONFIRMING,),
            **{(phase, "deadline"): (_P.CLOSED,) for phase in (*_BEFORE_RESULT, _P.CONFIRMING)},
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        assert context.model is not None
        super().__init__(context, replace(context.stamp, model_hash=hash_model(context.model)))
        self._epoch: EpochSecrets = context.secrets
        self._neighbours = self._epoch.graph.neighbours_of(context.name)
        self._tensors = context.parameters.share_mode is ShareMode.TENSOR
        self._taken_vectors: dict[PartyId, RingVector] = {}
        self._digests: dict[PartyId, ResultDigest] = {}
        self._survivors: tuple[PartyId, ...] = ()
        self._aggregate: RingVector | None = None
        self._result: Result | None = None

    def start(self, now: float) -> list[Event]:
        context = self._context
        self._wait(now)
        events: list[Event] = []
        if self._recovers:
            events += self._deal_shares(
                complete(context.session.members), {ShareKind.SELF_MASK: self._self_seed}
            )
        else:
            events += check_differencing(context, frozenset(context.session.members))
            self._sharing_graph = complete(context.session.members)
            self.move("start", _P.MASKING, self.deadline)
        if self._tensors:
            events.append(
                WorkRequested(self._sealed_share_vectors, self._send_share_vectors, context.withdraw)
            )
        return events + context.train(self._train_finished, now)

    def _given_key(self, taker: PartyId) -> Secret:
        return share_key(self._epoch.given[taker], self._masking_stamp, self._context.name, taker)

    def _taken_key(self, giver: PartyId) -> Secret:
        return share_key(self._epoch.taken[giver], self._masking_stamp, giver, self._context.name)

    def _sealed_share_vectors(self) -> list[Event]:
        """Share mode 'tensor': the shares themselves, as the paper sends them."""
        parameters = self._context.parameters
        ring = parameters.encoding.ring
        messages: list[Event] = []
        for taker in self._neighbours:
            vector = ring.zeros(parameters.vector_length)
            apply_masks(ring, vector, add=[self._given_key(taker)])
            box = seal_box(self._vector_box_key(self._context.name, taker, taker), vector.tobytes(), b"")
            messages.append(Send(taker, ShareVector(self.stamp, np.frombuffer(box, dtype=np.uint8))))
        return messages

    def _send_share_vectors(self, messages: list[Event], now: float) -> list[Event]:
        return messages

    def _vector_box_key(self, sender: PartyId, receiver: PartyId, other: PartyId) -> Secret:
        agreed = self._context.box_key.agree(self._context.session.box_key_of(other))
        stamp = self._masking_stamp
        context = KeyContext(
            stamp.session, stamp.round, stamp.attempt, sender, receiver, "share", model_hash=stamp.model_hash
        )
        return derive_key(agreed, Purpose.SEAL, context)

    @handles(ShareVector)
    def take_share_vector(self, sender: PartyId, message: ShareVector, now: float) -> list[Event]:
        if not self._tensors or sender not in self._neighbours:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "a share vector that nobody asked for")
        require_absent(sender, self._taken_vectors)
        plain = open_box(self._vector_box_key(sender, self._context.name, sender), message.box.tobytes(), b"")
        parameters, ring = self._context.parameters, self._context.parameters.encoding.ring
        if len(plain) != parameters.vector_length * ring.word_bytes:
            raise Rejection(
                AbortReason.BAD_VECTOR, "the share has another length than the federation's vectors"
            )
        self._taken_vectors[sender] = np.frombuffer(plain, dtype=ring.dtype)
        return self._upload_when_ready(now)

    @property
    def _ready_to_mask(self) -> bool:
        return not self._tensors or len(self._taken_vectors) == len(self._neighbours)

    def _masked_vector(self) -> RingVector:
        """Both decompositions and the self mask, fused into one pass over the vector."""
        assert self._trained is not None
        parameters, me = self._context.parameters, self._context.name
        ring = parameters.encoding.ring
        vector = parameters.encoding.encode(self._trained.payload, self._trained.samples)
        given = [self._given_key(taker) for taker in self._neighbours]
        taken = [] if self._tensors else [self._taken_key(giver) for giver in self._neighbours]
        own = [self_mask_key(self._self_seed, self.stamp, me)] if self._recovers else []
        biases = subtracted_biases(
            self._epoch, self._masking_stamp, me, self._context.session.members, parameters.bias
        )
        apply_masks(ring, vector, add=[*taken, *own], subtract=[*given, *biases])
        for share in self._taken_vectors.values():
            vector += share
        return vector

    def _droppable(self, sharers: frozenset[PartyId]) -> frozenset[PartyId]:
        return frozenset(self._context.session.members)

    @property
    def _mask_graph(self) -> Graph:
        return self._epoch.graph

    def _proved(self, agreed: SurvivorList, now: float) -> list[Event]:
        """Reveal the keys of this attempt that were shared with dropped neighbours, in both directions.

        Not before t others have signed the list: a server that told each neighbour of one peer, and nobody else,
        that this peer dropped would get all that hides its vector but the self mask, and that from the rest.
        """
        if not agreed.dropped:
            return self._release(SurvivorProof, now)
        self.move(SurvivorProof, _P.REVEALING)
        self._wait(now)
        gone = [name for name in self._neighbours if name in agreed.dropped]
        if not gone:
            return []
        parameters = self._context.parameters
        taken_sum = parameters.encoding.ring.zeros(parameters.vector_length if self._tensors else 0)
        for name in gone if self._tensors else ():
            taken_sum += self._taken_vectors[name]
        given = {name: self._given_key(name).reveal() for name in gone}
        taken = {} if self._tensors else {name: self._taken_key(name).reveal() for name in gone}
        return [Send(SERVER, SeedsRevealed(self.stamp, given, taken, taken_sum))]

    @handles(SeedsComplete)
    def release_shares(self, sender: PartyId, message: SeedsComplete, now: float) -> list[Event]:
        require_from_server(sender)
        return self._release(SeedsComplete, now)

    @handles(Aggregate)
    def take_aggregate(self, sender: PartyId, message: Aggregate, now: float) -> list[Event]:
        require_from_server(sender)
        parameters = self._context.parameters
        agreed = self._check.accepted if self._check is not None else None
        expected = agreed.survivors if agreed is not None else self._context.session.members
        if message.survivors != expected:
            raise Rejection(AbortReason.SURVIVOR_LIST, "the sum is over another set than we agreed on")
        self._aggregate = parameters.encoding.ring.require(message.vector, parameters.vector_length)
        self._survivors = expected
        self.move(Aggregate, _P.ADDING_BIAS)
        self._wait(now)
        return [WorkRequested(self._compute_result, self._state_result, self._context.withdraw)]

    def _compute_result(self) -> Result:
        assert self._aggregate is not None
        assert self._context.model is not None
        parameters, stamp = self._context.parameters, self._masking_stamp
        total = np.array(self._aggregate, dtype=parameters.encoding.ring.dtype)
        add_biases_back(parameters.encoding.ring, total, self._epoch, stamp, self._survivors, parameters.bias)
        mean, _ = parameters.encoding.decode_mean(total, len(self._survivors))
        model = self._context.next_model(self._context.model, mean)
        model_hash = hash_model(model)
        aggregate = hashlib.sha256(self._aggregate.data.cast("B")).digest()
        digest = ResultDigest(
            self.stamp, aggregate, keyed_model_hash(self._epoch, self.stamp, model_hash, "result")
        )
        return Result(total, model, model_hash, digest)

    def _state_result(self, result: Result, now: float) -> list[Event]:
        self._result = result
        self.move("work", _P.CONFIRMING)
        self._wait_for_digests(now)
        others = [name for name in self._survivors if name != self._context.name]
        self._compare()
        stated = self._context.record.state(self.stamp, result.model_hash)
        return [stated, *(Send(name, result.digest) for name in (*others, SERVER))]

    @property
    def is_decisive(self) -> bool:
        return self.phase in (_P.ADDING_BIAS, _P.CONFIRMING)

    @handles(ResultDigest)
    def note_digest(self, sender: PartyId, message: ResultDigest, now: float) -> list[Event]:
        self._context.session.require_member(sender)
        require_absent(sender, self._digests)
        if self._survivors and sender not in self._survivors:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a digest of a party that is not in the sum")
        self._digests[sender] = message
        if self.phase is _P.CONFIRMING:
            self._compare()
        return []

    def _compare(self) -> None:
        """Commit when everyone agrees; one that disagrees is enough to end without a result."""
        assert self._result is not None
        mine = self._result.digest
        for name, theirs in sorted(self._digests.items()):
            if name in self._survivors and (theirs.aggregate, theirs.result) != (mine.aggregate, mine.result):
                same_sum = theirs.aggregate == mine.aggregate
                culprit = name if same_sum else SERVER
                detail = (
                    f"{name} and {self._context.name} were given different sums or computed different models"
                )
                self._close(
                    "comparison", Failed(AbortReason.AGGREGATES_DIFFER, culprit, detail, repeatable=False)
                )
                return
        if not list(self._unconfirmed()):
            self._close("comparison", self._committed())

    def _unconfirmed(self) -> Iterator[PartyId]:
        return (name for name in self._survivors if name not in (self._context.name, *self._digests))

    def _committed(self) -> Committed:
        assert self._result is not None
        result = self._result
        return Committed(self._survivors, result.model, result.model_hash, result.total)

    def _close(self, trigger: Trigger, outcome: Committed | Failed) -> None:
        if self.phase is not _P.CLOSED:
            self.move(trigger, _P.CLOSED)
            self.outcome = outcome

    def _wait_for_digests(self, now: float) -> None:
        self.deadline = now + self._context.timing.phase_s

    def deadline_passed(self, now: float) -> list[Event]:
        if self.phase is not _P.CONFIRMING:
            return super().deadline_passed(now)
        agreeing = len(self._survivors) - len(list(self._unconfirmed()))
        if agreeing >= self._context.parameters.threshold_of(len(self._survivors)):
            self._close("deadline", self._committed())
            return []
        detail = f"{agreeing} of {len(self._survivors)} peers confirmed the result"
        return self.fail("deadline", _P.CLOSED, Failed(AbortReason.TIMED_OUT, "", detail, repeatable=False))
