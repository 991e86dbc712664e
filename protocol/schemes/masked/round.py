"""The server's side of a round with zero-sum masks, without a machine around it: it opens exactly one sum.

specs/protocol.md, sections 2 and 3:

    GATHERING_KEYS       a signed key of everyone; then the graph of the attempt is drawn and the keys are published
    GATHERING_SHARES     relay sealed shares among the clients
    COLLECTING           add up the uploads; when they close, whoever uploaded is in the sum
    VOTING               (threat 'lying') propose the survivor list and collect signatures over it
    GATHERING_RELEASES   collect one share for each party of the list
    UNMASKING            rebuild the masks that do not cancel, remove them, decode, step

With recovery 'none' uploads are collected at once, and one that is missing ends the run: repeating the round with
others would let two sums be compared. The machines of `masked` and of `bilateral` run it, each about its own payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_new_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    Committed,
    Failed,
    NextPhase,
    ServerContext,
    failure_of,
    require_absent,
)
from veilsum.protocol.machines.events import Event, PartyNamed, Send, WorkRequested
from veilsum.protocol.machines.transitions import Phase, Trigger
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.masked.messages import (
    ROUND_KEY_DOMAIN,
    CohortKeys,
    KeyRecord,
    RoundKeys,
    cohort_seed,
    round_key_digest,
)
from veilsum.protocol.schemes.masked.payload import MaskedMean, OpenedSum
from veilsum.protocol.secure_sum.agreement import (
    SurvivorAgreement,
    missing_upload,
    unopened,
    unrecoverable,
)
from veilsum.protocol.secure_sum.attendance import Attendance
from veilsum.protocol.secure_sum.group_key import dealer_of
from veilsum.protocol.secure_sum.masking import pair_mask_key, self_mask_key, unmask_sum
from veilsum.protocol.secure_sum.relay import ShareRelay, require_refused
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares, holders_of
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput, RunningTotal
from veilsum.protocol.wire.messages import Message


class MaskedServerPhase(Phase):
    GATHERING_KEYS = "gathering-keys"
    GATHERING_SHARES = "gathering-shares"
    COLLECTING = "collecting"
    VOTING = "voting"
    GATHERING_RELEASES = "gathering-releases"
    UNMASKING = "unmasking"
    CERTIFYING = "certifying"
    CLOSED = "closed"


_P = MaskedServerPhase
_WAITING = (_P.GATHERING_KEYS, _P.GATHERING_SHARES, _P.COLLECTING, _P.VOTING, _P.GATHERING_RELEASES)
_AFTER_KEYS = (_P.GATHERING_SHARES, _P.COLLECTING, _P.CLOSED)
_AFTER_UPLOADS = (_P.VOTING, _P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED)

MASKED_SERVER_MOVES: dict[tuple[Phase, Trigger], tuple[Phase, ...]] = {
    (_P.GATHERING_KEYS, RoundKeys): (_P.GATHERING_KEYS, *_AFTER_KEYS),
    (_P.GATHERING_KEYS, "deadline"): _AFTER_KEYS,
    (_P.GATHERING_KEYS, "loss"): _AFTER_KEYS,
    (_P.GATHERING_SHARES, SealedShares): (_P.GATHERING_SHARES, _P.COLLECTING, _P.CLOSED),
    (_P.COLLECTING, MaskedInput): (_P.COLLECTING, *_AFTER_UPLOADS),
    (_P.VOTING, SurvivorSignature): (_P.VOTING, _P.GATHERING_RELEASES),
    (_P.GATHERING_RELEASES, SurvivorSignature): (_P.GATHERING_RELEASES,),
    (_P.GATHERING_RELEASES, ReleasedShares): (_P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED),
    (_P.GATHERING_SHARES, "deadline"): (_P.COLLECTING, _P.CLOSED),
    (_P.COLLECTING, "deadline"): _AFTER_UPLOADS,
    (_P.VOTING, "deadline"): (_P.GATHERING_RELEASES, _P.CLOSED),
    (_P.GATHERING_RELEASES, "deadline"): (_P.UNMASKING, _P.CLOSED),
    (_P.GATHERING_SHARES, "loss"): (_P.COLLECTING, _P.CLOSED),
    (_P.COLLECTING, "loss"): _AFTER_UPLOADS,
    (_P.VOTING, "loss"): (_P.GATHERING_RELEASES, _P.CLOSED),
    (_P.GATHERING_RELEASES, "loss"): (_P.UNMASKING, _P.CLOSED),
    (_P.UNMASKING, "work"): (_P.CLOSED,),
}


class MaskedRound:
    """Everything from the keys to the opened sum; says which phase follows, and leaves going there to the machine."""

    def __init__(
        self,
        context: ServerContext,
        payload: MaskedMean,
    ) -> None:
        self.stamp = context.stamp
        self._context = context
        self._payload = payload
        self._recovers = context.parameters.recovery is Recovery.SHARES
        self._attendance = Attendance(context)
        self._keys: dict[PartyId, KeyRecord] = {}
        self._graph: Graph | None = None
        self._relay: ShareRelay | None = None
        ring = context.parameters.encoding.ring
        self._total = RunningTotal(ring, payload.length, self._attendance.spent_cohort)
        self._agreement: SurvivorAgreement | None = None

    def take(self, phase: Phase, sender: PartyId, message: Message, now: float) -> NextPhase | Failed | None:
        """Take a message in, or raise and change nothing; then go on as soon as nobody is awaited any more."""
        match message:
            case RoundKeys():
                self._take_key(sender, message)
            case SealedShares():
                assert self._relay is not None
                self._relay.add(sender, message)
            case MaskedInput():
                self._take_upload(sender, message)
            case SurvivorSignature():
                if phase is not _P.VOTING:
                    return None
                self._agreed.vote.add(sender, message)
            case ReleasedShares():
                self._agreed.take_release(sender, message)
        return None if self._waiting_for(phase) else self.close(phase, now)

    def lose(self, phase: Phase, party: PartyId, now: float) -> NextPhase | Failed | None:
        self._attendance.awaited.discard(party)
        if phase not in _WAITING or self._waiting_for(phase):
            return None
        return self.close(phase, now)

    def _waiting_for(self, phase: Phase) -> Set[PartyId]:
        awaited = self._attendance.awaited
        match phase:
            case _P.GATHERING_KEYS:
                return awaited - self._keys.keys()
            case _P.GATHERING_SHARES:
                assert self._relay is not None
                return self._relay.silent(awaited)
            case _P.COLLECTING:
                return self._total.silent(awaited, self._cohort)
            case _P.VOTING:
                return self._agreed.unsigned
            case _:
                return self._agreed.unreleased(awaited)

    def close(self, phase: Phase, now: float) -> NextPhase | Failed:
        """End a phase with what has come; whoever lied so far is named if the attempt ends here."""
        found = self._closed(phase, now)
        return replace(found, named=self.named) if isinstance(found, Failed) else found

    def _closed(self, phase: Phase, now: float) -> NextPhase | Failed:
        match phase:
            case _P.GATHERING_KEYS:
                return self._publish_keys(now)
            case _P.GATHERING_SHARES:
                return self._deliver_shares(now)
            case _P.COLLECTING:
                return self._close_uploads(now)
            case _P.VOTING:
                return self._prove(now)
            case _:
                return self._agreed.unopenable() or NextPhase(_P.UNMASKING)

    @property
    def _cohort(self) -> Set[PartyId]:
        """Those whose upload can enter the sum."""
        return self._relay.senders if self._relay is not None else self._keys.keys()

    @property
    def _drawn_graph(self) -> Graph:
        assert self._graph is not None
        return self._graph

    @property
    def _agreed(self) -> SurvivorAgreement:
        assert self._agreement is not None
        return self._agreement

    @property
    def named(self) -> tuple[PartyNamed, ...]:
        """Those who lied with shares: at dealing, as far as holders say so, and at releasing."""
        dealt = self._relay.named if self._relay is not None else ()
        return (*dealt, *(self._agreement.named if self._agreement is not None else ()))

    def _take_upload(self, sender: PartyId, message: MaskedInput) -> None:
        require_refused(self._relay, sender, message)
        self._total.add(sender, message, self._cohort)
        if self._relay is not None:
            self._relay.note_refused(sender, message.refused)

    def _take_key(self, sender: PartyId, message: RoundKeys) -> None:
        require_absent(sender, self._keys)
        record = message.keys
        if record.model_hash != self.stamp.model_hash:
            raise Rejection(AbortReason.WRONG_MODEL, "the round key is signed for another model")
        require_agreement_key(record.key)
        require_new_key(sender, record.key, ((name, one.key) for name, one in self._keys.items()))
        digest = round_key_digest(self.stamp, sender, record)
        self._context.roster.verify(sender, ROUND_KEY_DOMAIN, digest, record.signature)
        self._keys[sender] = record

    def _publish_keys(self, now: float) -> NextPhase | Failed:
        refusal = self._attendance.refusal(self._keys.keys(), _P.GATHERING_KEYS) or self._divided()
        if refusal is not None:
            return refusal
        try:
            self._graph = self._context.parameters.graph.draw(self._keys, cohort_seed(self.stamp, self._keys))
            self._graph.require_connected()
        except Rejection as problem:
            return failure_of(problem)
        published: list[Event] = [Send(name, self._keys_for(name)) for name in sorted(self._keys)]
        if not self._recovers:
            return NextPhase(_P.COLLECTING, published, self._uploads_due(now))
        masking_keys = {name: record.key for name, record in self._keys.items()}
        self._relay = ShareRelay(self._context, self._graph, self._keys.keys(), masking_keys)
        return NextPhase(_P.GATHERING_SHARES, published, now + self._context.timing.phase_s)

    def _divided(self) -> Failed | None:
        """Members that hold different group keys cannot check one sum: the fewer are left out, or else the dealer.

        Both if the rest can do without them: one of the two lies, and would do it again.
        """
        by_group: dict[bytes, list[PartyId]] = {}
        for name, record in sorted(self._keys.items()):
            by_group.setdefault(record.group, []).append(name)
        if len(by_group) < 2:
            return None
        session = self._context.session
        largest = max(by_group.values(), key=len)
        others = tuple(name for name in sorted(self._keys) if name not in largest)
        dealer, needed = dealer_of(session.id, session.members), self._context.parameters.threshold_of
        rest = len({*session.members} - {*others, dealer})
        if len(largest) < needed(len(session.members)):
            others = (dealer,)
        elif rest >= max(needed(len(session.members)), self._context.parameters.min_parties):
            others = tuple(sorted({*others, dealer}))
        detail = f"not all members hold one group key; the next session goes without {', '.join(others[:10])}"
        return Failed(AbortReason.BAD_KEY, detail=detail, missing=others, left_out=others)

    def _keys_for(self, name: PartyId) -> CohortKeys:
        if not self._context.parameters.lists_neighbourhoods:
            return CohortKeys(self.stamp, self._keys, len(self._keys))
        around = holders_of(self._drawn_graph, name)
        keys, hellos = (
            {other: self._keys[other] for other in around},
            self._context.session.unshown(name, around),
        )
        return CohortKeys(self.stamp, keys, len(self._keys), hellos)

    def _uploads_due(self, now: float) -> float:
        return now + self._context.timing.training_s + self._context.timing.phase_s

    def _deliver_shares(self, now: float) -> NextPhase | Failed:
        assert self._relay is not None
        refusal = self._attendance.refusal(self._relay.senders, _P.GATHERING_SHARES)
        if refusal is not None:
            return refusal
        return NextPhase(_P.COLLECTING, self._relay.deliveries(self.stamp), self._uploads_due(now))

    def _close_uploads(self, now: float) -> NextPhase | Failed:
        uploaded = self._total.parties
        missing = tuple(sorted(self._cohort - uploaded))
        if missing and not self._recovers:
            return missing_upload(missing)
        refusal = self._attendance.refusal(uploaded, _P.COLLECTING)
        if refusal is not None:
            return refusal
        if not self._recovers:
            return NextPhase(_P.UNMASKING)
        assert self._relay is not None
        graph = self._drawn_graph
        problem = unrecoverable(self._context, graph, graph, uploaded, missing, self._relay)
        return problem or self._propose(missing, now)

    def _propose(self, missing: tuple[PartyId, ...], now: float) -> NextPhase:
        survivors, deadline = self._total.survivors, now + self._context.timing.phase_s
        proposed = SurvivorList(self.stamp, survivors, missing, len(survivors)).vouched(self._context.me)
        assert self._relay is not None
        agreement = SurvivorAgreement(self._context, self._drawn_graph, proposed, self._relay)
        self._agreement = agreement
        if self._context.parameters.threat is Threat.LYING:
            return NextPhase(_P.VOTING, agreement.propose(), deadline)
        return NextPhase(_P.GATHERING_RELEASES, agreement.ask_for_shares(agreement.lists()), deadline)

    def _prove(self, now: float) -> NextPhase | Failed:
        unproved = self._agreed.unproved()
        if unproved is not None:
            return unproved
        asked = self._agreed.ask_for_shares(self._agreed.proofs())
        return NextPhase(_P.GATHERING_RELEASES, asked, now + self._context.timing.phase_s)

    def opening(
        self,
        found: NextPhase | Failed | None,
        opened: Callable[[OpenedSum, float], list[Event]],
        not_opened: Callable[[ProtocolError, float], list[Event]],
    ) -> list[Event]:
        """The work that opens the sum, where that is what comes next."""
        due = isinstance(found, NextPhase) and found.phase is _P.UNMASKING
        return [WorkRequested(self._open_sum, opened, not_opened)] if due else []

    def _open_sum(self) -> OpenedSum:
        """Rebuild, unmask, decode, step. Heavy: runs away from the event loop."""
        encoding, total, stamp = (
            self._context.parameters.encoding,
            self._total,
            self._payload.bound(self.stamp),
        )
        if self._agreement is not None:
            secrets = self._agreement.collector.rebuild()
            for term, place in self._payload.mask_terms.items():
                self_keys = [self_mask_key(secrets[name], stamp, name, term) for name in total.survivors]
                unmask_sum(encoding.ring, total.vector[place], self_keys, self._open_pairs(secrets, term))
        words = total.vector[: len(total.vector) - self._payload.tag_words]
        mean, _ = encoding.decode_mean(words, len(total.parties))
        return OpenedSum(self._payload.step(mean), words)

    def _open_pairs(
        self, secrets: dict[PartyId, Secret], term: str
    ) -> Iterator[tuple[PartyId, PartyId, Secret]]:
        """Pair masks between a survivor and a dropped party: only one side of each is in the sum."""
        stamp = self._payload.bound(self.stamp)
        for missing in sorted(self._cohort - self._total.parties):
            key = AgreementKey.from_private(secrets[missing])
            for survivor in self._drawn_graph.neighbours_of(missing):
                if survivor in self._total.parties:
                    theirs, pair = self._keys[survivor].key, (survivor, missing)
                    yield survivor, missing, pair_mask_key(key, theirs, stamp, pair, term)

    @property
    def awaited(self) -> set[PartyId]:
        """The members that have not left."""
        return self._attendance.awaited

    @property
    def survivors(self) -> tuple[PartyId, ...]:
        return self._total.survivors

    @property
    def uploads(self) -> RingVector:
        """The sum of the uploads; once it is open, the words of the sum and of the tags."""
        return self._total.vector

    def committed(self, opened: OpenedSum) -> Committed:
        stepped = opened.stepped
        return Committed(
            self._total.survivors,
            stepped.model,
            stepped.model_hash,
            opened.total,
            loss=stepped.loss,
            named=self.named,
        )

    def failed(self, error: ProtocolError) -> Failed:
        """Why nothing opened, with everyone who lied."""
        return unopened(error, self._total.parties, self.named)
