"""The server's side of one attempt of AMPC or MPC: it adds up what it cannot read.

specs/protocol.md, sections 2 and 4:

    GATHERING_SHARES     relay sealed shares of self masks among the peers
    COLLECTING           add up the uploads; when they close, whoever uploaded is in the sum
    VOTING               propose the survivor list and collect signatures over it
    REVEALING            (after dropouts) collect the keys that survivors exchanged with the dropped
    GATHERING_RELEASES   collect one share for each survivor
    UNMASKING            rebuild the self masks and remove them
    CONFIRMING           the peers compare what they made of the sum

When peers vanished after the shares were cut, the sum still holds their halves of the exchanged shares.
Once t of them have signed who dropped, survivors reveal those (and only those) keys; nothing is opened by
that, since every upload is under its self mask. If someone vanishes here, the attempt is repeated with fresh
seeds and the trained values stay good. Then the self masks of the survivors are rebuilt, and what remains is
the sum under the biases (`ampc`) or the sum itself (`mpc`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace

from veilsum.protocol.agreed.parameters import Recovery, ShareMode
from veilsum.protocol.chain.votes import Ballot, VoteCount
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.graphs.graph import complete
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    NextPhase,
    ServerContext,
    handles,
    reason_from_text,
    require_absent,
)
from veilsum.protocol.machines.events import Event, PartyNamed, Send, WorkRequested
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest, SeedsComplete, SeedsRevealed
from veilsum.protocol.secure_sum.agreement import (
    SurvivorAgreement,
    missing_upload,
    unopened,
    unrecoverable,
)
from veilsum.protocol.secure_sum.attendance import Attendance
from veilsum.protocol.secure_sum.certifying import SPOILED, uncertified
from veilsum.protocol.secure_sum.masking import self_mask_key
from veilsum.protocol.secure_sum.relay import ShareRelay, require_refused
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput, RunningTotal
from veilsum.protocol.secure_sum.verification import TAG_WORDS, upload_length
from veilsum.protocol.wire.messages import Message


class AmpcServerPhase(Phase):
    GATHERING_SHARES = "gathering-shares"
    COLLECTING = "collecting"
    VOTING = "voting"
    REVEALING = "revealing"
    GATHERING_RELEASES = "gathering-releases"
    UNMASKING = "unmasking"
    CONFIRMING = "confirming"
    CLOSED = "closed"


_P = AmpcServerPhase
_WORDS = ("deadline", "loss")
_AFTER_UPLOADS = (_P.VOTING, _P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED)


class AmpcServer(AttemptMachine):
    table = TransitionTable(
        "ampc server",
        _P.GATHERING_SHARES,
        {
            (_P.GATHERING_SHARES, "start"): (_P.GATHERING_SHARES, _P.COLLECTING),
            (_P.GATHERING_SHARES, SealedShares): (_P.GATHERING_SHARES, _P.COLLECTING, _P.CLOSED),
            (_P.COLLECTING, MaskedInput): (_P.COLLECTING, *_AFTER_UPLOADS),
            (_P.VOTING, SurvivorSignature): (_P.VOTING, _P.REVEALING, _P.GATHERING_RELEASES),
            (_P.GATHERING_RELEASES, SurvivorSignature): (_P.GATHERING_RELEASES,),
            (_P.GATHERING_RELEASES, ReleasedShares): (_P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED),
            **{
                move: targets
                for word in _WORDS
                for move, targets in {
                    (_P.GATHERING_SHARES, word): (_P.COLLECTING, _P.CLOSED),
                    (_P.COLLECTING, word): _AFTER_UPLOADS,
                    (_P.VOTING, word): (_P.REVEALING, _P.GATHERING_RELEASES, _P.CLOSED),
                    (_P.GATHERING_RELEASES, word): (_P.UNMASKING, _P.CLOSED),
                }.items()
            },
            (_P.REVEALING, SurvivorSignature): (_P.REVEALING,),
            (_P.REVEALING, SeedsRevealed): (_P.REVEALING, _P.GATHERING_RELEASES, _P.CLOSED),
            **{(_P.REVEALING, word): (_P.GATHERING_RELEASES, _P.CLOSED) for word in _WORDS},
            (_P.UNMASKING, "work"): (_P.CONFIRMING, _P.CLOSED),
            (_P.CONFIRMING, ResultDigest): (_P.CONFIRMING, _P.CLOSED),
            **{(_P.CONFIRMING, word): (_P.CLOSED,) for word in _WORDS},
        },
    )

    def __init__(self, context: ServerContext, *, learns_sum: bool) -> None:
        super().__init__(context.stamp.without_model())
        parameters, members = context.parameters, context.session.members
        self._context = context
        self._learns_sum = learns_sum
        self._recovers = parameters.recovery is Recovery.SHARES
        self._members = frozenset(members)
        # Self masks are shared among all peers: a thin graph of shares must not make dropouts fatal.
        self._share_graph = complete(members)
        self._mask_graph = parameters.graph.draw(members, context.session.id)
        self._attendance = Attendance(context)
        self._relay = ShareRelay(context, self._share_graph, self._members)
        ring, spent_cohort = parameters.encoding.ring, self._attendance.spent_cohort
        self._total = RunningTotal(ring, upload_length(parameters), spent_cohort)
        self._agreement: SurvivorAgreement | None = None
        self._revealed: dict[PartyId, SeedsRevealed] = {}
        self._digests: dict[PartyId, ResultDigest] = {}
        self._refusals: dict[PartyId, AbortReason] = {}
        self._count: VoteCount | None = None

    def _new_count(self) -> VoteCount:
        """The votes for what came of the sum: the server sees who votes, and not for which model."""
        point, survivors = self._context.point, self._total.survivors
        ballot = Ballot(self.stamp.round + 1, b"", b"", point.electorate, survivors)
        return VoteCount(point.ballots, self._context.roster, self._context.parameters, ballot)

    @property
    def _votes(self) -> VoteCount:
        assert self._count is not None
        return self._count

    def start(self, now: float) -> list[Event]:
        timing = self._context.timing
        if self._recovers:
            self.move("start", _P.GATHERING_SHARES, now + timing.phase_s)
        else:
            self.move("start", _P.COLLECTING, now + timing.training_s + timing.phase_s)
        return self._context.open_round()

    @handles(SealedShares)
    def gather_shares(self, sender: PartyId, message: SealedShares, now: float) -> list[Event]:
        self._relay.add(sender, message)
        return self._advance(SealedShares, now)

    @handles(MaskedInput)
    def collect(self, sender: PartyId, message: MaskedInput, now: float) -> list[Event]:
        require_refused(self._relay if self._recovers else None, sender, message)
        self._total.add(sender, message, self._cohort)
        self._relay.note_refused(sender, message.refused)
        return self._advance(MaskedInput, now)

    @handles(SurvivorSignature)
    def count_vote(self, sender: PartyId, message: SurvivorSignature, now: float) -> list[Event]:
        if self.phase is not _P.VOTING:
            return []
        self._agreed.vote.add(sender, message)
        return self._advance(SurvivorSignature, now)

    @handles(SeedsRevealed)
    def gather_revealed(self, sender: PartyId, message: SeedsRevealed, now: float) -> list[Event]:
        require_absent(sender, self._revealed)
        gone = self._gone_neighbours(sender)
        tensors = self._context.parameters.share_mode is ShareMode.TENSOR
        if message.given.keys() != gone or message.taken.keys() != (set() if tensors else gone):
            raise Rejection(AbortReason.BAD_SHARE, "keys for each dropped neighbour, no more and no fewer")
        if tensors:
            self._total.require_vector(message.taken_sum)
        self._revealed[sender] = message
        return self._advance(SeedsRevealed, now)

    @handles(ReleasedShares)
    def gather_release(self, sender: PartyId, message: ReleasedShares, now: float) -> list[Event]:
        self._agreed.take_release(sender, message)
        return self._advance(ReleasedShares, now)

    @handles(ResultDigest)
    def note_digest(self, sender: PartyId, message: ResultDigest, now: float) -> list[Event]:
        require_absent(sender, self._digests)
        if sender not in self._total.parties:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a digest of a party that is not in the sum")
        if message.vote:
            self._votes.add(sender, message.vote)
        self._digests[sender] = message
        return self._advance(ResultDigest, now)

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        if self.phase is _P.CONFIRMING and reason_from_text(reason) in SPOILED:
            self._refusals[party] = reason_from_text(reason)
        return self.lose(party, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        self._attendance.awaited.discard(party)
        return self._advance("loss", now) if self.deadline is not None else []

    def deadline_passed(self, now: float) -> list[Event]:
        return self._close_phase("deadline", now)

    def _advance(self, trigger: Trigger, now: float) -> list[Event]:
        """Go on as soon as nobody is awaited any more."""
        return [] if self._waiting_for() else self._close_phase(trigger, now)

    def _waiting_for(self) -> Set[PartyId]:
        awaited = self._attendance.awaited
        match self.phase:
            case _P.GATHERING_SHARES:
                return self._relay.silent(awaited)
            case _P.COLLECTING:
                return self._total.silent(awaited, self._cohort)
            case _P.VOTING:
                return self._agreed.unsigned
            case _P.REVEALING:
                return awaited & self._unrevealed()
            case _P.CONFIRMING:
                return (awaited & self._total.parties) - self._digests.keys()
            case _:
                return self._agreed.unreleased(awaited)

    def _close_phase(self, trigger: Trigger, now: float) -> list[Event]:
        """End a phase with what has come; whoever lied so far is named if the attempt ends here."""
        if self.phase is _P.CONFIRMING:
            return self._conclude(trigger)
        found = self._found(now)
        found = replace(found, named=self._named) if isinstance(found, Failed) else found
        return self.follow(trigger, found, _P.CLOSED)

    def _found(self, now: float) -> NextPhase | Failed:
        match self.phase:
            case _P.GATHERING_SHARES:
                return self._deliver_shares(now)
            case _P.COLLECTING:
                return self._close_uploads(now)
            case _P.VOTING:
                return self._prove(now)
            case _P.REVEALING:
                return self._complete_seeds(now)
            case _:
                return self._agreed.unopenable() or self._unmask()

    @property
    def _cohort(self) -> Set[PartyId]:
        """Those whose upload can enter the sum."""
        return self._relay.senders if self._recovers else self._members

    @property
    def _agreed(self) -> SurvivorAgreement:
        assert self._agreement is not None
        return self._agreement

    def _gone_neighbours(self, party: PartyId) -> set[PartyId]:
        return {name for name in self._mask_graph.neighbours[party] if name not in self._total.parties}

    def _unrevealed(self) -> set[PartyId]:
        survivors = self._total.parties
        return {name for name in survivors if self._gone_neighbours(name) and name not in self._revealed}

    def _deliver_shares(self, now: float) -> NextPhase | Failed:
        timing = self._context.timing
        refusal = self._attendance.refusal(self._relay.senders, self.phase)
        if refusal is not None:
            return refusal
        deadline = now + timing.training_s + timing.phase_s
        return NextPhase(_P.COLLECTING, self._relay.deliveries(self.stamp), deadline)

    def _close_uploads(self, now: float) -> NextPhase | Failed:
        """Shares were cut for every neighbour of the session: whoever did not upload has dropped."""
        uploaded = self._total.parties
        missing = tuple(sorted(self._members - uploaded))
        if not self._recovers and missing:
            return missing_upload(missing)
        refusal = self._attendance.refusal(uploaded, self.phase)
        if refusal is not None or not self._recovers:
            return refusal or self._unmask()
        problem = unrecoverable(
            self._context, self._share_graph, self._mask_graph, uploaded, missing, self._relay
        )
        if problem is not None:
            return problem
        proposed = SurvivorList(self.stamp, self._total.survivors, missing, len(uploaded)).vouched(
            self._context.me
        )
        self._agreement = SurvivorAgreement(self._context, self._share_graph, proposed, self._relay)
        return NextPhase(_P.VOTING, self._agreement.propose(), now + self._context.timing.phase_s)

    def _prove(self, now: float) -> NextPhase | Failed:
        """Show the signatures around; without dropouts that makes peers release their shares."""
        agreed, deadline = self._agreed, now + self._context.timing.phase_s
        unproved = agreed.unproved()
        if unproved is not None:
            return unproved
        proofs = agreed.proofs()
        if agreed.proposed.dropped:
            return NextPhase(_P.REVEALING, [Send(name, proof) for name, proof in proofs.items()], deadline)
        return NextPhase(_P.GATHERING_RELEASES, agreed.ask_for_shares(proofs), deadline)

    def _complete_seeds(self, now: float) -> NextPhase | Failed:
        silent = tuple(sorted(self._unrevealed()))
        if silent:
            detail = f"keys shared with dropped peers were not revealed by {', '.join(silent[:10])}"
            return Failed(AbortReason.TIMED_OUT, silent[0], detail, silent)
        complete_seeds: dict[PartyId, Message] = dict.fromkeys(
            self._total.survivors, SeedsComplete(self.stamp)
        )
        asked = self._agreed.ask_for_shares(complete_seeds)
        return NextPhase(_P.GATHERING_RELEASES, asked, now + self._context.timing.phase_s)

    def _unmask(self) -> NextPhase:
        return NextPhase(_P.UNMASKING, [WorkRequested(self._open_sum, self._opened, self._not_opened)])

    def _open_sum(self) -> None:
        """Remove every mask but the biases. Runs away from the event loop."""
        if self._agreement is None:
            return
        total = self._total
        secrets = self._agreement.collector.rebuild()
        given = [Secret(key) for one in self._revealed.values() for key in one.given.values()]
        taken = [Secret(key) for one in self._revealed.values() for key in one.taken.values()]
        own = [self_mask_key(secrets[name], self.stamp, name) for name in total.survivors]
        ring = self._context.parameters.encoding.ring
        apply_masks(ring, total.vector, add=given, subtract=[*taken, *own])
        for one in self._revealed.values():
            if len(one.taken_sum):
                total.vector -= one.taken_sum

    def _opened(self, _: None, now: float) -> list[Event]:
        self._count = self._new_count()
        self.move("work", _P.CONFIRMING, now + 2 * self._context.timing.phase_s)
        aggregate = Aggregate(self.stamp, self._total.survivors, self._total.vector)
        return [Send(name, aggregate) for name in self._total.survivors]

    def _not_opened(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, unopened(error, self._total.parties, self._named))

    @property
    def _named(self) -> tuple[PartyNamed, ...]:
        """Those who lied with shares: at dealing, as far as holders say so, and at releasing."""
        return (*self._relay.named, *(self._agreement.named if self._agreement is not None else ()))

    def _conclude(self, trigger: Trigger) -> list[Event]:
        survivors = self._total.survivors
        stated = Counter(digest.result for digest in self._digests.values())
        common = stated.most_common(1)[0][0] if stated else None
        silent = tuple(name for name in survivors if self._stated_by(name) != common)
        certificate = self._votes.certificate
        if certificate is None and len(stated) > 1:
            detail = f"peers state different results; {', '.join(silent[:10])} differ from most"
            failed = Failed(AbortReason.AGGREGATES_DIFFER, detail=detail, repeatable=False, named=self._named)
            return self.fail(trigger, _P.CLOSED, failed)
        if certificate is None:
            failed = uncertified(self._context, self._votes, silent, self._refusals)
            return self.fail(trigger, _P.CLOSED, replace(failed, named=self._named))
        self.move(trigger, _P.CLOSED)
        total = self._total.vector[:-TAG_WORDS] if self._learns_sum else None
        record = self._context.point.record.advanced(None, certificate, position=certificate.position)
        self.outcome = Committed(survivors, total=total, silent=silent, named=self._named, chain=record)
        return []

    def _stated_by(self, name: PartyId) -> bytes | None:
        digest = self._digests.get(name)
        return None if digest is None else digest.result
