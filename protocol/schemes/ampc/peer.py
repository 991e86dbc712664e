"""A peer's side of one attempt of AMPC or MPC.

specs/protocol.md, sections 2 and 4:

    SHARING              shares of our self mask are with the server, those of the others are due
    MASKING              waiting for local training, and for share vectors where those travel
    AWAITING_SURVIVORS   uploaded; the server must say who is in the sum
    VOTING               the list is signed; enough others must have signed it too
    REVEALING            (after dropouts) keys exchanged with the dropped are with the server, all of them are due
    AWAITING_RESULT      our shares are released, the sum is being opened
    ADDING_BIAS          the sum is here; the biases are added back, and the next model is made of it
    CONFIRMING           our result is stated; everyone must state the same
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import complete
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    ParticipantContext,
    handles,
    require_absent,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event, Send, WorkRequested
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.ampc.ballots import BallotPair
from veilsum.protocol.schemes.ampc.decomposition import (
    SessionSecrets,
    add_biases_back,
    subtracted_biases,
)
from veilsum.protocol.schemes.ampc.exchanged import ExchangedShares
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest, SeedsComplete, ShareVector
from veilsum.protocol.secure_sum.masking import self_mask_key
from veilsum.protocol.secure_sum.participant import OwnUpload, ShareRecovery, fresh_seed, require_recovery
from veilsum.protocol.secure_sum.shares import DeliveredShares, ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof, check_differencing
from veilsum.protocol.secure_sum.verification import TAG_WORDS, attempt_tags, upload_length


class AmpcPeerPhase(Phase):
    SHARING = "sharing"
    MASKING = "masking"
    AWAITING_SURVIVORS = "awaiting-survivors"
    VOTING = "voting"
    REVEALING = "revealing"
    AWAITING_RESULT = "awaiting-result"
    ADDING_BIAS = "adding-bias"
    CONFIRMING = "confirming"
    CLOSED = "closed"


_P = AmpcPeerPhase
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
    """What a peer computed from the aggregate: the verified sum, the state that follows, and its votes for that."""

    total: RingVector
    after: ChainState
    votes: BallotPair
    digest: ResultDigest


class AmpcPeer(AttemptMachine):
    table = TransitionTable(
        "ampc peer",
        _P.SHARING,
        {
            (_P.SHARING, "start"): (_P.MASKING,),
            (_P.SHARING, DeliveredShares): (_P.MASKING,),
            (_P.MASKING, "work"): (_P.AWAITING_SURVIVORS, _P.AWAITING_RESULT),
            (_P.AWAITING_SURVIVORS, SurvivorList): (_P.VOTING, _P.AWAITING_RESULT),
            **{(phase, SurvivorList): (phase,) for phase in (_P.VOTING, _P.AWAITING_RESULT)},
            (_P.VOTING, SurvivorProof): (_P.REVEALING, _P.AWAITING_RESULT),
            **{(phase, ShareVector): (phase,) for phase in (_P.SHARING, _P.MASKING)},
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
        super().__init__(context.stamp)
        self._context = context
        self._recovers = context.parameters.recovery is Recovery.SHARES
        self._secrets: SessionSecrets = context.secrets
        self._members = context.session.members
        # Nobody but the peers knows the model: what they derive is bound to the one that they really hold.
        self._bound_stamp = replace(context.stamp, model_hash=context.point.state.model_hash)
        self._tags = attempt_tags(
            context.parameters.encoding, self._secrets.group.key, self._bound_stamp, self._members
        )
        self._self_seed = fresh_seed(context)
        self._shares = ExchangedShares(context, self._secrets, self._bound_stamp)
        self._own = OwnUpload(context)
        self._recovery: ShareRecovery | None = None
        self._digests: dict[PartyId, ResultDigest] = {}
        self._survivors: tuple[PartyId, ...] = ()
        self._aggregate: RingVector | None = None
        self._result: Result | None = None

    def start(self, now: float) -> list[Event]:
        context = self._context
        self._wait(now)
        events: list[Event] = []
        if self._recovers:
            everyone = complete(self._members)
            self._recovery = ShareRecovery(context, everyone, self._secrets.graph)
            events.append(self._recovery.deal({ShareKind.SELF_MASK: self._self_seed}))
        else:
            events += check_differencing(context, frozenset(self._members))
            self.move("start", _P.MASKING, self.deadline)
        if self._shares.as_tensors:
            events.append(
                WorkRequested(self._shares.sealed_vectors, lambda sends, _: sends, context.withdraw)
            )
        return events + context.train(self._train_finished, now)

    def _wait(self, now: float) -> None:
        self.deadline = now + self._context.timing.patience_s

    @handles(DeliveredShares)
    def keep_shares(self, sender: PartyId, message: DeliveredShares, now: float) -> list[Event]:
        """Shares were cut for every neighbour of the session: a list must say of every member what became of it."""
        require_from_server(sender)
        warnings = require_recovery(self._recovery).keep(message, frozenset(self._members))
        self.move(DeliveredShares, _P.MASKING)
        return warnings + self._upload_when_ready(now)

    @handles(ShareVector)
    def take_share_vector(self, sender: PartyId, message: ShareVector, now: float) -> list[Event]:
        self._shares.take_vector(sender, message)
        return self._upload_when_ready(now)

    def _train_finished(self, result: LocalResult, now: float) -> list[Event]:
        self._own.trained = result
        return self._upload_when_ready(now)

    def _upload_when_ready(self, now: float) -> list[Event]:
        self._wait(now)
        ready = self.phase is _P.MASKING and self._shares.complete
        return self._own.request(self._masked_vector, self._upload) if ready else []

    def _masked_vector(self, trained: LocalResult) -> RingVector:
        parameters, me = self._context.parameters, self._context.name
        vector = self._tags.upload_of(me, trained.payload, trained.samples)
        own = [self_mask_key(self._self_seed, self.stamp, me)] if self._recovers else []
        biases = subtracted_biases(self._secrets, self._bound_stamp, me, self._members, parameters.bias)
        self._shares.exchange(vector, own, biases)
        return vector

    def _upload(self, vector: RingVector, now: float) -> list[Event]:
        model_hash = self._bound_stamp.model_hash
        try:
            self._own.require_same(model_hash)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        self.move("work", _P.AWAITING_SURVIVORS if self._recovers else _P.AWAITING_RESULT)
        self._wait(now)
        if self._recovery is None:
            return self._own.give(vector, model_hash, self._members)
        return self._own.give(vector, model_hash, refused=self._recovery.refused)

    @handles(SurvivorList)
    def consider_survivors(self, sender: PartyId, message: SurvivorList, now: float) -> list[Event]:
        require_from_server(sender)
        recovery = require_recovery(self._recovery)
        warnings = recovery.consider(message)
        self.move(SurvivorList, _P.VOTING)
        self._wait(now)
        return [*warnings, recovery.sign()]

    @handles(SurvivorProof)
    def believe_survivors(self, sender: PartyId, message: SurvivorProof, now: float) -> list[Event]:
        """Reveal the keys of this attempt that were shared with dropped neighbours, in both directions.

        Not before t others have signed the list: a server that told each neighbour of one peer, and nobody else,
        that this peer dropped would get all that hides its vector but the self mask, and that from the rest.
        """
        require_from_server(sender)
        agreed = require_recovery(self._recovery).believe(message)
        if not agreed.dropped:
            return self._release(SurvivorProof, now)
        self.move(SurvivorProof, _P.REVEALING)
        self._wait(now)
        revealed = self._shares.reveal(agreed.dropped)
        return [] if revealed is None else [Send(SERVER, revealed)]

    @handles(SeedsComplete)
    def release_shares(self, sender: PartyId, message: SeedsComplete, now: float) -> list[Event]:
        require_from_server(sender)
        return self._release(SeedsComplete, now)

    def _release(self, trigger: Trigger, now: float) -> list[Event]:
        released = require_recovery(self._recovery).release()
        self.move(trigger, _P.AWAITING_RESULT)
        self._wait(now)
        return released

    @handles(Aggregate)
    def take_aggregate(self, sender: PartyId, message: Aggregate, now: float) -> list[Event]:
        require_from_server(sender)
        parameters = self._context.parameters
        agreed = self._recovery.survivors if self._recovery is not None else None
        expected = agreed if agreed is not None else self._members
        if message.survivors != expected:
            raise Rejection(AbortReason.SURVIVOR_LIST, "the sum is over another set than we agreed on")
        self._aggregate = parameters.encoding.ring.require(message.vector, upload_length(parameters))
        self._survivors = expected
        self.move(Aggregate, _P.ADDING_BIAS)
        self._wait(now)
        return [WorkRequested(self._compute_result, self._state_result, self._context.withdraw)]

    def _compute_result(self) -> Result:
        assert self._aggregate is not None
        parameters, survivors, point = self._context.parameters, self._survivors, self._context.point
        words = np.array(self._aggregate, dtype=parameters.encoding.ring.dtype)
        add_biases_back(
            parameters.encoding.ring, words, self._secrets, self._bound_stamp, survivors, parameters.bias
        )
        total = words[:-TAG_WORDS]
        self._tags.require_sum(total, words[-TAG_WORDS:], survivors)
        mean, _ = parameters.encoding.decode_mean(total, len(survivors))
        after = point.next_state(mean)
        votes = BallotPair(self._context, self._secrets.group, point.ballot(after, survivors))
        return Result(total, after, votes, votes.digest())

    def _state_result(self, result: Result, now: float) -> list[Event]:
        self._result = result
        self.move("work", _P.CONFIRMING)
        self._wait_for_digests(now)
        others = [name for name in self._survivors if name != self._context.name]
        try:
            decided = DecisionMade(
                VoteCast(self.stamp.round, self.stamp.attempt, result.votes.cast(result.after))
            )
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        self._compare()
        return [decided, *(Send(name, result.digest) for name in (*others, SERVER))]

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
        """Commit what is certified once all have spoken: whoever states another result is outvoted, not blamed.

        A digest proves nothing about its sender: two may differ because one of them lies, or because the server and a
        peer showed them different sums.
        """
        assert self._result is not None
        mine, votes = self._result.digest, self._result.votes
        others = [name for name in sorted(self._digests) if name in self._survivors]
        agreeing = [name for name in others if self._digests[name].result == mine.result]
        for name in agreeing:
            if not votes.add(name, self._digests[name]):
                del self._digests[name]
        if list(self._unconfirmed()):
            return
        if votes.certified:
            self._close("comparison", self._committed())
        elif len(agreeing) < len(others):
            differing = ", ".join(name for name in others if name not in agreeing)
            detail = f"{differing} state other results than {self._context.name}, and too few agree on one"
            failed = Failed(AbortReason.AGGREGATES_DIFFER, detail=detail, repeatable=False)
            self._close("comparison", failed)

    def _unconfirmed(self) -> Iterator[PartyId]:
        return (name for name in self._survivors if name not in (self._context.name, *self._digests))

    def _committed(self) -> Committed:
        assert self._result is not None
        after, record = self._result.after, self._result.votes.record(self._result.after)
        return Committed(self._survivors, after.model, after.hash, self._result.total, chain=record)

    def _close(self, trigger: Trigger, outcome: Committed | Failed) -> None:
        if self.phase is not _P.CLOSED:
            self.move(trigger, _P.CLOSED)
            self.outcome = outcome

    def _wait_for_digests(self, now: float) -> None:
        """For less than a server that starts anew waits for us: our vote is kept, and can be won in its session."""
        timing = self._context.timing
        self.deadline = now + min(timing.phase_s, timing.opening_s) / 2

    def deadline_passed(self, now: float) -> list[Event]:
        if self.phase is not _P.CONFIRMING:
            return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
        assert self._result is not None
        if self._result.votes.certified:
            self._close("deadline", self._committed())
            return []
        agreeing = len(self._survivors) - len(list(self._unconfirmed()))
        detail = f"{agreeing} of {len(self._survivors)} peers confirmed the result"
        return self.fail("deadline", _P.CLOSED, Failed(AbortReason.TIMED_OUT, "", detail, repeatable=False))
