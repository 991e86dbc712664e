"""A client's side of one attempt with zero-sum masks.

specs/protocol.md, sections 2 and 3:

    ADVERTISING          our key is with the server, the keys of the cohort are due
    SHARING              shares of our secrets are with the server, those of the others are due
    MASKING              waiting for local training
    AWAITING_SURVIVORS   uploaded; the server must say who is in the sum
    VOTING               (threat 'lying') the list is signed; enough others must have signed it too
    AWAITING_RESULT      our shares are released, the sum is being opened
    CHECKING             (`masked`) the sum is here: its tags are checked, and the step is taken
    CERTIFYING           (`masked`) we voted; the certificate is due

`MaskedMember` is this side of the round without a machine around it: `bilateral` runs the same one as soon as it
knows the perturbation, about another payload.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from veilsum.protocol.agreed.listing import read_listed
from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_distinct_keys
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph, explicit
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    NextPhase,
    ParticipantContext,
    handles,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.masked.messages import (
    ROUND_KEY_DOMAIN,
    CohortKeys,
    KeyRecord,
    RoundKeys,
    cohort_seed,
    round_key_digest,
)
from veilsum.protocol.schemes.masked.payload import MaskedPayload, WholeUpdate
from veilsum.protocol.secure_sum.certifying import CheckedSum, SumCheck, SumOpened
from veilsum.protocol.secure_sum.group_key import GroupKey
from veilsum.protocol.secure_sum.masking import mask_upload, pair_mask_key, self_mask_key
from veilsum.protocol.secure_sum.participant import (
    OwnUpload,
    ShareRecovery,
    Uploading,
    fresh_seed,
    require_recovery,
)
from veilsum.protocol.secure_sum.shares import DeliveredShares, ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof, check_differencing
from veilsum.protocol.secure_sum.verification import attempt_tags
from veilsum.protocol.wire.messages import Message


class MaskedClientPhase(Phase):
    ADVERTISING = "advertising"
    SHARING = "sharing"
    MASKING = "masking"
    AWAITING_SURVIVORS = "awaiting-survivors"
    VOTING = "voting"
    AWAITING_RESULT = "awaiting-result"
    CHECKING = "checking"
    CERTIFYING = "certifying"
    CLOSED = "closed"


_P = MaskedClientPhase
_OPEN = (_P.ADVERTISING, _P.SHARING, _P.MASKING, _P.AWAITING_SURVIVORS, _P.VOTING, _P.AWAITING_RESULT)

MASKED_CLIENT_MOVES: dict[tuple[Phase, Trigger], tuple[Phase, ...]] = {
    (_P.ADVERTISING, CohortKeys): (_P.SHARING, _P.MASKING),
    (_P.SHARING, DeliveredShares): (_P.MASKING,),
    (_P.MASKING, "work"): (_P.AWAITING_SURVIVORS, _P.AWAITING_RESULT),
    (_P.AWAITING_SURVIVORS, SurvivorList): (_P.VOTING, _P.AWAITING_RESULT),
    (_P.VOTING, SurvivorList): (_P.VOTING,),
    (_P.AWAITING_RESULT, SurvivorList): (_P.AWAITING_RESULT,),
    (_P.VOTING, SurvivorProof): (_P.AWAITING_RESULT,),
    **{(phase, RoundClosed): (_P.CLOSED,) for phase in _OPEN},
    **{(phase, "deadline"): (_P.CLOSED,) for phase in _OPEN},
}


class MaskedClient(AttemptMachine):
    table = TransitionTable(
        "masked client",
        _P.ADVERTISING,
        {
            **MASKED_CLIENT_MOVES,
            **{(phase, SumOpened): (_P.CHECKING,) for phase in _OPEN},
            (_P.CHECKING, "work"): (_P.CERTIFYING, _P.CLOSED),
            (_P.CHECKING, RoundClosed): (_P.CHECKING, _P.CLOSED),
            (_P.CERTIFYING, RoundClosed): (_P.CLOSED,),
            **{(phase, "deadline"): (_P.CLOSED,) for phase in (_P.CHECKING, _P.CERTIFYING)},
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        group: GroupKey = context.secrets
        members, encoding = context.session.members, context.parameters.encoding
        tags = attempt_tags(encoding, group.key, context.stamp, members)
        self._round = MaskedMember(context, WholeUpdate(context, tags), group.id)
        self._sum = SumCheck(context, tags)

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.patience_s
        return [self._round.advertise(), *self._context.train(self._train_finished, now)]

    def _train_finished(self, result: LocalResult, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.patience_s
        self._round.take_trained(result)
        return self._round.make_upload(self.phase, self._upload)

    @handles(CohortKeys, DeliveredShares, SurvivorList, SurvivorProof)
    def take(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        require_from_server(sender)
        found = self.follow(type(message), self._round.take(message, now), _P.CLOSED)
        return [*found, *self._round.make_upload(self.phase, self._upload)]

    def _upload(self, vector: RingVector, now: float) -> list[Event]:
        if self.phase is not _P.MASKING:
            return []
        try:
            step = self._round.give(vector, now)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        return self.follow("work", step, _P.CLOSED)

    @property
    def is_decisive(self) -> bool:
        """Once we voted, the attempt may end at any time: the vote is kept, and can be won in another session."""
        return self.phase is _P.CHECKING

    @handles(SumOpened)
    def check_sum(self, sender: PartyId, opened: SumOpened, now: float) -> list[Event]:
        require_from_server(sender)
        survivors = read_listed(
            self._context.roster, self._context.parameters, opened.survivors, opened.present
        )
        self._round.require_agreed(self.phase, survivors)
        agreed = survivors if self._round.agreed(self.phase) is not None else None
        work = self._sum.request(opened, survivors, lambda checked, at: self._checked(checked, agreed, at))
        self.move(SumOpened, _P.CHECKING, now + self._context.timing.patience_s)
        return work

    def _checked(self, checked: CheckedSum, agreed: tuple[PartyId, ...] | None, now: float) -> list[Event]:
        try:
            voted = self._sum.vote(checked, agreed)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        found = self._sum.outcome()
        self.move(
            "work", _P.CERTIFYING if found is None else _P.CLOSED, now + self._context.timing.patience_s
        )
        self.outcome = found
        return voted

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        """A round cannot be closed with a result that we did not check: while we do, the closing word waits."""
        require_from_server(sender)
        if closed.committed and self.phase not in (_P.CHECKING, _P.CERTIFYING):
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "the round was closed, and its sum was not shown")
        found = self._sum.conclude(closed)
        if found is None:
            self.move(RoundClosed, _P.CHECKING, self.deadline)
            return []
        self.move(RoundClosed, _P.CLOSED)
        self.outcome = found
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))


class MaskedMember:
    """Everything from our key to our release; says which phase follows, and leaves going there to the machine."""

    def __init__(
        self,
        context: ParticipantContext,
        payload: MaskedPayload,
        group: bytes = b"",
    ) -> None:
        """`group` is the id of the group key that sums are verified with, where they are."""
        self._context = context
        self._group = group
        self._payload = payload
        self._recovers = context.parameters.recovery is Recovery.SHARES
        self._self_seed = fresh_seed(context)
        self._round_key = AgreementKey.generate(context.random)
        self._keys: dict[PartyId, bytes] = {}
        self._recovery: ShareRecovery | None = None
        self._own = OwnUpload(context)
        self.graph: Graph | None = None

    def advertise(self) -> Event:
        context, stamp = self._context, self._context.stamp
        unsigned = KeyRecord(self._round_key.public, stamp.model_hash, self._group, bytes(64))
        digest = round_key_digest(stamp, context.name, unsigned)
        signature = context.me.signing.sign(ROUND_KEY_DOMAIN, digest)
        return Send(SERVER, RoundKeys(stamp, replace(unsigned, signature=signature)))

    def take_trained(self, result: LocalResult) -> None:
        self._own.trained = result

    def make_upload(self, phase: Phase, then: Uploading) -> list[Event]:
        """The work that makes the upload, once all that it needs is here."""
        return self._own.request(self._masked_vector, then) if phase is _P.MASKING else []

    def take(self, message: Message, now: float) -> NextPhase:
        """Take a message of the server in, or raise and change nothing."""
        deadline = now + self._context.timing.patience_s
        match message:
            case CohortKeys():
                return self._learn_cohort(message, deadline)
            case DeliveredShares():
                return NextPhase(_P.MASKING, require_recovery(self._recovery).keep(message), deadline)
            case SurvivorList():
                return self._consider(message, deadline)
            case _:
                assert isinstance(message, SurvivorProof)
                recovery = require_recovery(self._recovery)
                recovery.believe(message)
                return NextPhase(_P.AWAITING_RESULT, recovery.release(), deadline)

    def _learn_cohort(self, message: CohortKeys, deadline: float) -> NextPhase:
        context = replace(self._context, session=self._context.session.introduced(message.hellos))
        keys = {name: record.key for name, record in message.keys.items()}
        self._require_sound_cohort(keys, message.size)
        context.record.require_repeatable(context.stamp.round, keys)
        context.sums.require_cohort(keys)
        graph = self._graph_over(message)
        graph.require_connected()
        self._verify_keys(message, graph)
        if not self._recovers:
            warnings = check_differencing(context, frozenset(keys))
            self._keys, self.graph = keys, graph
            return NextPhase(_P.MASKING, [*self._enter_cohort(keys), *warnings], deadline)
        secrets = {ShareKind.SELF_MASK: self._self_seed, ShareKind.MASKING_KEY: self._round_key.private}
        recovery = ShareRecovery(context, graph, graph)
        dealt = recovery.deal(secrets)
        self._keys, self.graph, self._recovery = keys, graph, recovery
        return NextPhase(_P.SHARING, [*self._enter_cohort(keys), dealt], deadline)

    def _enter_cohort(self, keys: Collection[PartyId]) -> list[Event]:
        """Of the session's members these, and no others, hold our shares and can sign a list with us in it."""
        if self._context.parameters.lists_neighbourhoods or set(keys) == set(self._context.session.members):
            return []
        return [self._context.record.enter(self._context.stamp, tuple(sorted(keys)))]

    def _graph_over(self, message: CohortKeys) -> Graph:
        """The graph of the cohort, or our own neighbourhood where that is all we are told."""
        parameters, me = self._context.parameters, self._context.name
        if not parameters.lists_neighbourhoods:
            return parameters.graph.draw(message.keys, cohort_seed(self._context.stamp, message.keys))
        star = explicit(message.keys, [(me, other) for other in message.keys if other != me])
        if star.degree(me) != parameters.graph.k:
            raise Rejection(
                AbortReason.GRAPH_TOO_THIN,
                f"{star.degree(me)} neighbours, {parameters.graph.k} were agreed on",
            )
        return star

    def _require_sound_cohort(self, keys: dict[PartyId, bytes], size: int) -> None:
        minimum = self._context.parameters.min_parties
        if size != len(keys) and not self._context.parameters.lists_neighbourhoods:
            raise Rejection(AbortReason.SURVIVOR_LIST, f"a cohort of {size}, and {len(keys)} keys")
        if keys.get(self._context.name) != self._round_key.public:
            raise Rejection(AbortReason.EQUIVOCATION, "our round key is missing or was changed")
        if size < minimum:
            raise Rejection(AbortReason.COHORT_TOO_SMALL, f"{size} keys, the agreed minimum is {minimum}")
        for name in keys:
            self._context.session.require_member(name)
        require_distinct_keys(keys)

    def _verify_keys(self, message: CohortKeys, graph: Graph) -> None:
        """All signatures against a server that may lie, else those of our neighbours."""
        context, stamp = self._context, self._context.stamp
        every = context.parameters.threat is Threat.LYING
        others = [name for name in graph.parties if name != context.name]
        for name in others if every else graph.neighbours_of(context.name):
            record = message.keys[name]
            require_agreement_key(record.key)
            if record.model_hash != stamp.model_hash:
                raise Rejection(
                    AbortReason.WRONG_MODEL, f"{name} was given another model than {context.name}"
                )
            if record.group != self._group:
                raise Rejection(AbortReason.BAD_KEY, f"{name} holds another group key than {context.name}")
            digest = round_key_digest(stamp, name, record)
            context.roster.verify(name, ROUND_KEY_DOMAIN, digest, record.signature)

    def _masked_vector(self, trained: LocalResult) -> RingVector:
        assert self.graph is not None
        context, stamp = self._context, self._payload.bound(self._context.stamp)
        me, ring = context.name, context.parameters.encoding.ring
        partners = self.graph.neighbours[me] if self._recovery is None else self._recovery.sharers - {me}
        vector = self._payload.encode(trained)
        for term, place in self._payload.mask_terms.items():
            pair_keys = {
                other: pair_mask_key(self._round_key, self._keys[other], stamp, (me, other), term)
                for other in partners
            }
            own = [self_mask_key(self._self_seed, stamp, me, term)] if self._recovers else []
            mask_upload(ring, vector[place], me, pair_keys, own)
        return vector

    def give(self, vector: RingVector, now: float) -> NextPhase:
        """The upload, or `Rejection` if we gave another update at this model."""
        assert self.graph is not None
        model_hash, deadline = self._bound_hash, now + self._context.timing.patience_s
        self._own.require_same(model_hash)
        if self._recovery is not None:
            given = self._own.give(vector, model_hash, refused=self._recovery.refused)
            return NextPhase(_P.AWAITING_SURVIVORS, given, deadline)
        return NextPhase(_P.AWAITING_RESULT, self._own.give(vector, model_hash, self.graph.parties), deadline)

    @property
    def _bound_hash(self) -> bytes:
        return self._payload.bound(self._context.stamp).model_hash

    def _consider(self, message: SurvivorList, deadline: float) -> NextPhase:
        recovery = require_recovery(self._recovery)
        warnings = recovery.consider(message)
        if self._context.parameters.threat is Threat.LYING:
            return NextPhase(_P.VOTING, [*warnings, recovery.sign()], deadline)
        return NextPhase(_P.AWAITING_RESULT, [*warnings, *recovery.release()], deadline)

    def require_agreed(self, phase: Phase, members: tuple[PartyId, ...]) -> None:
        """A sum with us in it is over the set that we agreed on."""
        agreed, named = self.agreed(phase), self._context.name in members
        if self._context.parameters.lists_neighbourhoods:
            members = tuple(name for name in members if name in self._keys)
        if (named or agreed is not None) and members != agreed:
            raise Rejection(
                AbortReason.SURVIVOR_LIST, "the round was closed with another set than we agreed on"
            )

    def agreed(self, phase: Phase) -> tuple[PartyId, ...] | None:
        """Those whose sum may have been opened with our consent; without recovery, all whose keys we use."""
        if self._recovers:
            return self._recovery.survivors if self._recovery is not None else None
        return tuple(sorted(self._keys)) if phase is _P.AWAITING_RESULT else None
