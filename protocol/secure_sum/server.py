"""The server's side of a sum that survives dropouts: what `masked` and `ampc` have in common.

    GATHERING_SHARES     relay sealed shares among the participants
    COLLECTING           add up the uploads; when they close, whoever uploaded is in the sum
    VOTING               propose the survivor list and collect signatures over it
    REVEALING            (`ampc`, `mpc`) collect the keys that survivors exchanged with the dropped
    GATHERING_RELEASES   collect one share for each party of the list
    UNMASKING            rebuild the masks that do not cancel, remove them, decode

A scheme says what happens before the shares and after the sum is open. With recovery 'none' uploads are
collected at once, and one that is missing ends the run: repeating the round with others would let two sums
be compared. For the same reason a list that shares were asked for once, perhaps by a server that was stopped since,
is the only one that is ever proposed in that round; an upload of anyone else is left out of the sum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    ServerContext,
    failure_of,
    handles,
    require_absent,
)
from veilsum.protocol.machines.events import Event, Send, WorkRequested
from veilsum.protocol.machines.transitions import Phase, Trigger
from veilsum.protocol.numbers.ring import add_into
from veilsum.protocol.secure_sum.shares import (
    DeliveredShares,
    ReleasedShares,
    SealedShares,
    ShareCollector,
    ShareKind,
    holders_of,
)
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorSignature, SurvivorVote
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp, Tensor


class SecureSumServerPhase(Phase):
    PERTURBING = "perturbing"
    GATHERING_KEYS = "gathering-keys"
    GATHERING_SHARES = "gathering-shares"
    COLLECTING = "collecting"
    VOTING = "voting"
    REVEALING = "revealing"
    GATHERING_RELEASES = "gathering-releases"
    UNMASKING = "unmasking"
    CONFIRMING = "confirming"
    CLOSED = "closed"


_P = SecureSumServerPhase

SECURE_SUM_MOVES: dict[tuple[Phase, Trigger], tuple[Phase, ...]] = {
    (_P.GATHERING_SHARES, SealedShares): (_P.GATHERING_SHARES, _P.COLLECTING, _P.CLOSED),
    (_P.COLLECTING, MaskedInput): (_P.COLLECTING, _P.VOTING, _P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED),
    (_P.VOTING, SurvivorSignature): (_P.VOTING, _P.GATHERING_RELEASES),
    (_P.GATHERING_RELEASES, SurvivorSignature): (_P.GATHERING_RELEASES,),
    (_P.GATHERING_RELEASES, ReleasedShares): (_P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED),
    **{
        move: targets
        for trigger in ("deadline", "loss")
        for move, targets in {
            (_P.GATHERING_SHARES, trigger): (_P.COLLECTING, _P.CLOSED),
            (_P.COLLECTING, trigger): (_P.VOTING, _P.GATHERING_RELEASES, _P.UNMASKING, _P.CLOSED),
            (_P.VOTING, trigger): (_P.GATHERING_RELEASES, _P.CLOSED),
            (_P.GATHERING_RELEASES, trigger): (_P.UNMASKING, _P.CLOSED),
        }.items()
    },
}


class SecureSumServer(AttemptMachine):
    votes_when_semi_honest: ClassVar[bool] = False
    shares_masking_keys: ClassVar[bool] = False

    def __init__(self, context: ServerContext, stamp: Stamp) -> None:
        super().__init__(stamp)
        self._context = context
        self._recovers = context.parameters.recovery is Recovery.SHARES
        self._awaited = set(context.session.members)
        self._boxes: dict[PartyId, SealedShares] = {}
        self._total = context.parameters.encoding.ring.zeros(self._vector_length)
        self._uploaded: set[PartyId] = set()
        self._left_out: set[PartyId] = set()
        self._settled = context.record.cohort_of(stamp.round)
        self._vote: SurvivorVote | None = None
        self._collector: ShareCollector | None = None

    @property
    @abstractmethod
    def _candidates(self) -> set[PartyId]:
        """Those who may share, or upload where nothing is shared."""

    @property
    @abstractmethod
    def _sharing_graph(self) -> Graph:
        """Who holds shares of whom."""

    @abstractmethod
    def _open_sum(self) -> Any:
        """The heavy part: rebuild, unmask, decode. Runs away from the event loop; its result goes to `_opened`."""

    @abstractmethod
    def _opened(self, opened: Any, now: float) -> list[Event]: ...

    @property
    def _vector_length(self) -> int:
        return self._context.parameters.vector_length

    @property
    def _cohort(self) -> set[PartyId]:
        """Those whose upload can enter the sum."""
        return set(self._boxes) if self._recovers else self._candidates

    @property
    def _droppable(self) -> set[PartyId]:
        """Those whose missing upload leaves something in the sum."""
        return self._cohort

    @property
    def _mask_graph(self) -> Graph:
        """Who shares a mask with whom that cancels in the sum."""
        return self._sharing_graph

    @property
    def _after_vote(self) -> Phase:
        return _P.GATHERING_RELEASES

    @property
    def _survivors(self) -> tuple[PartyId, ...]:
        return tuple(sorted(self._uploaded))

    @handles(SealedShares)
    def gather_shares(self, sender: PartyId, message: SealedShares, now: float) -> list[Event]:
        require_absent(sender, self._boxes)
        if sender not in self._candidates:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "shares of a party that is not in this attempt")
        if message.boxes.keys() != self._sharing_graph.neighbours[sender]:
            raise Rejection(AbortReason.BAD_SHARE, "a box for each neighbour, no more and no fewer")
        self._boxes[sender] = message
        return self._advance(SealedShares, now)

    @handles(MaskedInput)
    def collect(self, sender: PartyId, message: MaskedInput, now: float) -> list[Event]:
        require_absent(sender, self._uploaded)
        if sender not in self._cohort:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE, "an upload of a party that is not in this attempt"
            )
        require_absent(sender, self._left_out)
        vector = self._require_vector(message.vector)
        if self._settled is None or sender in self._settled:
            add_into(self._total, vector)
            self._uploaded.add(sender)
        else:
            self._left_out.add(sender)
        return self._advance(MaskedInput, now)

    def _require_vector(self, vector: Tensor) -> Tensor:
        return self._context.parameters.encoding.ring.require(vector, self._vector_length)

    @handles(SurvivorSignature)
    def count_vote(self, sender: PartyId, message: SurvivorSignature, now: float) -> list[Event]:
        assert self._vote is not None
        if self.phase is not _P.VOTING:
            return []
        self._vote.add(sender, message)
        return self._advance(SurvivorSignature, now)

    @handles(ReleasedShares)
    def gather_release(self, sender: PartyId, message: ReleasedShares, now: float) -> list[Event]:
        assert self._collector is not None
        if sender not in self._uploaded:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a dropped party releases nothing")
        self._collector.add(sender, message)
        return self._advance(ReleasedShares, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        self._awaited.discard(party)
        return self._advance("loss", now) if self.deadline is not None else []

    def deadline_passed(self, now: float) -> list[Event]:
        return self._next_phase("deadline", now)

    def _advance(self, trigger: Trigger, now: float) -> list[Event]:
        """Go on as soon as nobody is awaited any more."""
        return [] if self._waiting_for() else self._next_phase(trigger, now)

    def _waiting_for(self) -> set[PartyId]:
        match self.phase:
            case _P.GATHERING_SHARES:
                return (self._awaited & self._candidates) - self._boxes.keys()
            case _P.COLLECTING:
                return (self._awaited & self._cohort) - self._uploaded - self._left_out
            case _P.VOTING:
                assert self._vote is not None
                return set() if self._vote.complete else set(self._uploaded)
            case _:
                assert self._collector is not None
                return (self._awaited & self._uploaded) - self._collector.senders

    def _next_phase(self, trigger: Trigger, now: float) -> list[Event]:
        match self.phase:
            case _P.GATHERING_SHARES:
                return self._deliver_shares(trigger, now)
            case _P.COLLECTING:
                return self._close_uploads(trigger, now)
            case _P.VOTING:
                return self._prove(trigger, now)
            case _:
                return self._unmask(trigger)

    def _too_few(self, present: set[PartyId]) -> Failed | None:
        if len(present) >= max(2, self._context.parameters.min_parties):
            return None
        missing = tuple(sorted(set(self._context.session.members) - present))
        detail = (
            f"{len(present)} parties while {self.phase.value}, the agreed minimum is "
            f"{self._context.parameters.min_parties}; missing: {', '.join(missing[:10])}"
        )
        return Failed(AbortReason.COHORT_TOO_SMALL, detail=detail, missing=missing)

    def _not_the_same(self, present: set[PartyId]) -> Failed | None:
        gone = tuple(sorted((self._settled or frozenset()) - present))
        if not gone:
            return None
        detail = (
            f"the sum of this round may be open already, and can be repeated by the same parties only; missing: "
            f"{', '.join(gone[:10])}"
        )
        return Failed(AbortReason.DIFFERENCING, detail=detail)

    def _begin_gathering_shares(self, trigger: Trigger, now: float) -> None:
        """With recovery, shares come first; without, uploads are collected at once."""
        timing = self._context.timing
        if self._recovers:
            self.move(trigger, _P.GATHERING_SHARES, now + timing.phase_s)
        else:
            self.move(trigger, _P.COLLECTING, now + timing.training_s + timing.phase_s)

    def _deliver_shares(self, trigger: Trigger, now: float) -> list[Event]:
        boxed = set(self._boxes)
        failed = self._too_few(boxed) or self._not_the_same(boxed)
        if failed is not None:
            return self.fail(trigger, _P.CLOSED, failed)
        timing = self._context.timing
        self.move(trigger, _P.COLLECTING, now + timing.training_s + timing.phase_s)
        return [
            Send(name, DeliveredShares(self.stamp, self._boxes_for(name))) for name in sorted(self._boxes)
        ]

    def _boxes_for(self, name: PartyId) -> dict[PartyId, bytes]:
        around = self._sharing_graph.neighbours_of(name)
        return {other: self._boxes[other].boxes[name] for other in around if other in self._boxes}

    def _close_uploads(self, trigger: Trigger, now: float) -> list[Event]:
        missing = tuple(sorted(self._droppable - self._uploaded))
        if not self._recovers and missing:
            detail = f"no upload of {', '.join(missing[:10])}"
            failed = Failed(AbortReason.MISSING_UPLOAD, missing[0], detail, missing, repeatable=False)
            return self.fail(trigger, _P.CLOSED, failed)
        too_few = self._too_few(self._uploaded) or self._not_the_same(self._uploaded)
        if too_few is not None:
            return self.fail(trigger, _P.CLOSED, too_few)
        if not self._recovers:
            return self._unmask(trigger)
        try:
            self._mask_graph.require_connected_among(self._uploaded)
            self._require_enough_holders(missing)
        except Rejection as problem:
            failed = Failed(problem.reason, detail=problem.detail, missing=missing)
            return self.fail(trigger, _P.CLOSED, failed)
        return self._propose(trigger, missing, now)

    def _require_enough_holders(self, missing: tuple[PartyId, ...]) -> None:
        """Without t holders left nothing can be agreed on nor rebuilt: better to begin anew with those present."""
        for party in (*self._survivors, *missing):
            holders = holders_of(self._sharing_graph, party)
            left = sum(holder in self._uploaded for holder in holders)
            needed = self._context.parameters.threshold_of(len(holders))
            if left < needed:
                raise Rejection(
                    AbortReason.COHORT_TOO_SMALL,
                    f"{left} holders of the shares of {party} uploaded, {needed} are needed; "
                    f"missing: {', '.join(missing[:10])}",
                )

    def _propose(self, trigger: Trigger, missing: tuple[PartyId, ...], now: float) -> list[Event]:
        parameters = self._context.parameters
        proposed = SurvivorList(self.stamp, self._survivors, missing, len(self._survivors))
        wanted = dict.fromkeys(proposed.survivors, ShareKind.SELF_MASK)
        if self.shares_masking_keys:
            wanted |= dict.fromkeys(missing, ShareKind.MASKING_KEY)
        self._vote = SurvivorVote(self._context.roster, parameters, self._sharing_graph, proposed)
        self._collector = ShareCollector(parameters, self._sharing_graph, wanted)
        votes = parameters.threat is Threat.LYING or self.votes_when_semi_honest
        self.move(trigger, _P.VOTING if votes else _P.GATHERING_RELEASES, now + self._context.timing.phase_s)
        if votes:
            return [Send(name, proposed) for name in proposed.survivors]
        if not parameters.lists_neighbourhoods:
            return self._asking_for_shares(dict.fromkeys(proposed.survivors, proposed))
        return self._asking_for_shares(
            {name: self._list_around(name, proposed) for name in proposed.survivors}
        )

    def _asking_for_shares(self, messages: Mapping[PartyId, Message]) -> list[Event]:
        """Send what makes participants release their shares; from here on the round has one list for ever."""
        sends = [Send(name, message) for name, message in messages.items()]
        spent = self._context.record.spend(self.stamp, self._survivors, self._sharing_graph.parties)
        return [spent, *sends]

    def _list_around(self, name: PartyId, proposed: SurvivorList) -> SurvivorList:
        around = holders_of(self._sharing_graph, name)
        survivors = tuple(other for other in around if other in self._uploaded)
        dropped = tuple(other for other in around if other in self._boxes and other not in self._uploaded)
        return SurvivorList(self.stamp, survivors, dropped, proposed.total)

    def _prove(self, trigger: Trigger, now: float) -> list[Event]:
        assert self._vote is not None
        if not self._vote.complete:
            silent = tuple(sorted(self._uploaded - self._vote.signatures.keys()))
            detail = f"too few agreed on the survivor list; missing: {', '.join(silent[:10])}"
            return self.fail(trigger, _P.CLOSED, Failed(AbortReason.TIMED_OUT, silent[0], detail, silent))
        self.move(trigger, self._after_vote, now + self._context.timing.phase_s)
        proofs = {
            name: self._vote.proof_for(self.stamp, holders_of(self._sharing_graph, name))
            for name in self._survivors
        }
        if self._after_vote is _P.GATHERING_RELEASES:
            return self._asking_for_shares(proofs)
        return [Send(name, proof) for name, proof in proofs.items()]

    def _unmask(self, trigger: Trigger) -> list[Event]:
        short = self._collector.short_of if self._collector is not None else ()
        if short:
            assert self._collector is not None
            silent = sorted(self._uploaded - self._collector.senders)
            detail = f"too few shares to rebuild the masks of {', '.join(short[:10])}"
            if silent:
                detail += f"; none came from {', '.join(silent[:10])}"
            culprit = (*silent, *short)[0]
            failed = Failed(AbortReason.TIMED_OUT, culprit, detail, repeatable=bool(silent))
            return self.fail(trigger, _P.CLOSED, failed)
        self.move(trigger, _P.UNMASKING)
        return [WorkRequested(self._open_sum, self._opened, self._not_opened)]

    def _not_opened(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, failure_of(error, repeatable=False))
