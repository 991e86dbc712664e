"""A client's side of one attempt with zero-sum masks."""

from __future__ import annotations

from collections.abc import Mapping

from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_distinct_keys
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph, explicit
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import ParticipantContext, handles, outcome_of, require_from_server
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.machines.transitions import TransitionTable
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.masked.messages import (
    ROUND_KEY_DOMAIN,
    CohortKeys,
    KeyRecord,
    RoundKeys,
    cohort_seed,
    round_key_digest,
)
from veilsum.protocol.secure_sum.masking import WHOLE_VECTOR, mask_upload, pair_mask_key, self_mask_key
from veilsum.protocol.secure_sum.participant import (
    SECURE_SUM_MOVES,
    SecureSumParticipant,
    SecureSumParticipantPhase,
)
from veilsum.protocol.secure_sum.shares import ShareKind
from veilsum.protocol.secure_sum.survivors import check_differencing

_P = SecureSumParticipantPhase
_OPEN = (_P.ADVERTISING, _P.SHARING, _P.MASKING, _P.AWAITING_SURVIVORS, _P.VOTING, _P.AWAITING_RESULT)


class MaskedClient(SecureSumParticipant):
    share_kinds = (ShareKind.SELF_MASK, ShareKind.MASKING_KEY)
    table = TransitionTable(
        "masked client",
        _P.ADVERTISING,
        {
            (_P.ADVERTISING, CohortKeys): (_P.SHARING, _P.MASKING),
            **SECURE_SUM_MOVES,
            **{(phase, RoundClosed): (_P.CLOSED,) for phase in _OPEN},
            **{(phase, "deadline"): (_P.CLOSED,) for phase in _OPEN},
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        super().__init__(context, context.stamp)
        self._round_key = AgreementKey.generate(context.random)
        self._keys: dict[PartyId, bytes] = {}

    def start(self, now: float) -> list[Event]:
        self._wait(now)
        return [self._advertise(), *self._context.train(self._train_finished, now)]

    def _advertise(self) -> Event:
        context = self._context
        digest = round_key_digest(self.stamp, context.name, self._round_key.public, self.stamp.model_hash)
        signature = context.me.signing.sign(ROUND_KEY_DOMAIN, digest)
        record = KeyRecord(self._round_key.public, self.stamp.model_hash, signature)
        return Send(SERVER, RoundKeys(self.stamp, record))

    @handles(CohortKeys)
    def learn_cohort(self, sender: PartyId, message: CohortKeys, now: float) -> list[Event]:
        require_from_server(sender)
        context = self._context
        keys = {name: record.key for name, record in message.keys.items()}
        self._require_sound_cohort(keys, message.size)
        context.record.require_repeatable(self.stamp.round, keys)
        graph = self._graph_over(message)
        graph.require_connected()
        self._verify_keys(message, graph)
        if not self._recovers:
            warnings = check_differencing(context, frozenset(keys))
            self._keys, self._sharing_graph = keys, graph
            self.move(CohortKeys, _P.MASKING)
            return warnings + self._upload_when_ready(now)
        secrets = {ShareKind.SELF_MASK: self._self_seed, ShareKind.MASKING_KEY: self._round_key.private}
        dealt = self._deal_shares(graph, secrets)
        self._keys = keys
        self.move(CohortKeys, _P.SHARING)
        self._wait(now)
        return dealt

    def _graph_over(self, message: CohortKeys) -> Graph:
        """The graph of the cohort, or our own neighbourhood where that is all we are told."""
        parameters, me = self._context.parameters, self._context.name
        if not parameters.lists_neighbourhoods:
            return parameters.graph.draw(message.keys, cohort_seed(self.stamp, message.keys))
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
        context = self._context
        every = context.parameters.threat is Threat.LYING
        others = [name for name in graph.parties if name != context.name]
        for name in others if every else graph.neighbours_of(context.name):
            record = message.keys[name]
            require_agreement_key(record.key)
            if record.model_hash != self.stamp.model_hash:
                raise Rejection(
                    AbortReason.WRONG_MODEL, f"{name} was given another model than {context.name}"
                )
            digest = round_key_digest(self.stamp, name, record.key, record.model_hash)
            context.roster.verify(name, ROUND_KEY_DOMAIN, digest, record.signature)

    @property
    def _mask_terms(self) -> Mapping[str, slice]:
        """The parts of an upload that have mask streams of their own, by the name that sets those apart."""
        return WHOLE_VECTOR

    def _encoded(self) -> RingVector:
        assert self._trained is not None
        return self._context.parameters.encoding.encode(self._trained.payload, self._trained.samples)

    def _masked_vector(self) -> RingVector:
        me, stamp = self._context.name, self._masking_stamp
        partners = self._sharing_graph.neighbours[me]
        if self._keeper is not None:
            partners = self._keeper.sharers - {me}
        vector = self._encoded()
        for term, place in self._mask_terms.items():
            pair_keys = {
                other: pair_mask_key(self._round_key, self._keys[other], stamp, (me, other), term)
                for other in partners
            }
            own = [self_mask_key(self._self_seed, stamp, me, term)] if self._recovers else []
            mask_upload(self._context.parameters.encoding.ring, vector[place], me, pair_keys, own)
        return vector

    @property
    def _agreed_set(self) -> tuple[PartyId, ...] | None:
        """Those whose sum may have been opened with our consent; without recovery, all whose keys we use."""
        if self._recovers:
            accepted = self._check.accepted if self._check is not None else None
            return accepted.survivors if accepted is not None else None
        return tuple(sorted(self._keys)) if self.phase is _P.AWAITING_RESULT else None

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        require_from_server(sender)
        agreed = self._agreed_set
        named = self._context.name in closed.members
        members = closed.members
        if self._context.parameters.lists_neighbourhoods:
            members = tuple(name for name in members if name in self._keys)
        if closed.committed and (named or agreed is not None) and members != agreed:
            raise Rejection(
                AbortReason.SURVIVOR_LIST, "the round was closed with another set than we agreed on"
            )
        self.move(RoundClosed, _P.CLOSED)
        self.outcome = outcome_of(closed, self._context.name)
        return []
