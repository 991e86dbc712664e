"""The server's side of one attempt of AMPC or MPC: it adds up what it cannot read.

When peers vanished after the shares were cut, the sum still holds their halves of the exchanged shares.
Once t of them have signed who dropped, survivors reveal those (and only those) keys; nothing is opened by
that, since every upload is under its self mask. If someone vanishes here, the attempt is repeated with fresh
seeds and the trained values stay good. Then the self masks of the survivors are rebuilt, and what remains is
the sum under the biases (`ampc`) or the sum itself (`mpc`).
"""

from __future__ import annotations

from dataclasses import dataclass

from veilsum.protocol.agreed.parameters import ShareMode
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph, complete
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Committed, Failed, ServerContext, handles, require_absent
from veilsum.protocol.machines.events import Event, Send, Warned
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest, SeedsComplete, SeedsRevealed
from veilsum.protocol.secure_sum.masking import self_mask_key
from veilsum.protocol.secure_sum.server import SECURE_SUM_MOVES, SecureSumServer, SecureSumServerPhase
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.wire.messages import Stamp

_P = SecureSumServerPhase
_WORDS = ("deadline", "loss")


@dataclass(frozen=True)
class Opened:
    liars: tuple[PartyId, ...]


class AmpcServer(SecureSumServer):
    votes_when_semi_honest = True
    table = TransitionTable(
        "ampc server",
        _P.GATHERING_SHARES,
        {
            (_P.GATHERING_SHARES, "start"): (_P.GATHERING_SHARES, _P.COLLECTING),
            **SECURE_SUM_MOVES,
            (_P.VOTING, SurvivorSignature): (_P.VOTING, _P.REVEALING, _P.GATHERING_RELEASES),
            **{(_P.VOTING, trigger): (_P.REVEALING, _P.GATHERING_RELEASES, _P.CLOSED) for trigger in _WORDS},
            (_P.REVEALING, SurvivorSignature): (_P.REVEALING,),
            (_P.REVEALING, SeedsRevealed): (_P.REVEALING, _P.GATHERING_RELEASES, _P.CLOSED),
            **{(_P.REVEALING, trigger): (_P.GATHERING_RELEASES, _P.CLOSED) for trigger in _WORDS},
            (_P.UNMASKING, "work"): (_P.CONFIRMING, _P.CLOSED),
            (_P.CONFIRMING, ResultDigest): (_P.CONFIRMING, _P.CLOSED),
            (_P.CONFIRMING, "deadline"): (_P.CLOSED,),
            (_P.CONFIRMING, "loss"): (_P.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext, *, learns_sum: bool) -> None:
        super().__init__(context, Stamp(context.stamp.session, context.stamp.round, context.stamp.attempt))
        self._learns_sum = learns_sum
        self._graph = context.parameters.graph.draw(context.session.members, context.session.id)
        self._complete = complete(context.session.members)
        self._revealed: dict[PartyId, SeedsRevealed] = {}
        self._digests: dict[PartyId, ResultDigest] = {}

    @property
    def _candidates(self) -> set[PartyId]:
        return set(self._context.session.members)

    @property
    def _droppable(self) -> set[PartyId]:
        """Shares were cut for every neighbour of the epoch, whether it dealt its self mask or not."""
        return self._candidates

    @property
    def _sharing_graph(self) -> Graph:
        """Self masks are shared among all peers: a thin graph of shares must not make dropouts fatal."""
        return self._complete

    def start(self, now: float) -> list[Event]:
        self._begin_gathering_shares("start", now)
        return self._context.open_round()

    @handles(SeedsRevealed)
    def gather_revealed(self, sender: PartyId, message: SeedsRevealed, now: float) -> list[Event]:
        require_absent(sender, self._revealed)
        gone = self._gone_neighbours(sender)
        tensors = self._context.parameters.share_mode is ShareMode.TENSOR
        if message.given.keys() != gone or message.taken.keys() != (set() if tensors else gone):
            raise Rejection(AbortReason.BAD_SHARE, "keys for each dropped neighbour, no more and no fewer")
        if tensors:
            self._require_vector(message.taken_sum)
        self._revealed[sender] = message
        return self._advance(SeedsRevealed, now)

    def _gone_neighbours(self, party: PartyId) -> set[PartyId]:
        return {name for name in self._graph.neighbours[party] if name not in self._uploaded}

    @property
    def _mask_graph(self) -> Graph:
        return self._graph

    @property
    def _after_vote(self) -> Phase:
        assert self._vote is not None
        return _P.REVEALING if self._vote.proposed.dropped else _P.GATHERING_RELEASES

    def _unrevealed(self) -> set[PartyId]:
        return {name for name in self._uploaded if self._gone_neighbours(name) and name not in self._revealed}

    def _complete_seeds(self, trigger: Trigger, now: float) -> list[Event]:
        silent = tuple(sorted(self._unrevealed()))
        if silent:
            detail = f"keys shared with dropped peers were not revealed by {', '.join(silent[:10])}"
            return self.fail(trigger, _P.CLOSED, Failed(AbortReason.TIMED_OUT, silent[0], detail, silent))
        self.move(trigger, _P.GATHERING_RELEASES, now + self._context.timing.phase_s)
        return self._asking_for_shares(dict.fromkeys(self._survivors, SeedsComplete(self.stamp)))

    def _open_sum(self) -> Opened:
        if self._collector is None:
            return Opened(())
        ring = self._context.parameters.encoding.ring
        secrets, liars = self._collector.rebuild()
        given = [Secret(key) for one in self._revealed.values() for key in one.given.values()]
        taken = [Secret(key) for one in self._revealed.values() for key in one.taken.values()]
        own = [self_mask_key(secrets[name], self.stamp, name) for name in self._survivors]
        apply_masks(ring, self._total, add=given, subtract=[*taken, *own])
        for one in self._revealed.values():
            if len(one.taken_sum):
                self._total -= one.taken_sum
        return Opened(tuple(sorted(liars)))

    def _opened(self, opened: Opened, now: float) -> list[Event]:
        self.move("work", _P.CONFIRMING, now + 2 * self._context.timing.phase_s)
        aggregate = Aggregate(self.stamp, self._survivors, self._total)
        warnings: list[Event] = [
            Warned(f"{name} released a wrong share; it was left out") for name in opened.liars
        ]
        return warnings + [Send(name, aggregate) for name in self._survivors]

    @handles(ResultDigest)
    def note_digest(self, sender: PartyId, message: ResultDigest, now: float) -> list[Event]:
        require_absent(sender, self._digests)
        if sender not in self._uploaded:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a digest of a party that is not in the sum")
        self._digests[sender] = message
        return self._advance(ResultDigest, now)

    def _waiting_for(self) -> set[PartyId]:
        if self.phase is _P.REVEALING:
            return self._awaited & self._unrevealed()
        if self.phase is _P.CONFIRMING:
            return (self._awaited & self._uploaded) - self._digests.keys()
        return super()._waiting_for()

    def _next_phase(self, trigger: Trigger, now: float) -> list[Event]:
        if self.phase is _P.REVEALING:
            return self._complete_seeds(trigger, now)
        if self.phase is _P.CONFIRMING:
            return self._conclude(trigger)
        return super()._next_phase(trigger, now)

    def _conclude(self, trigger: Trigger) -> list[Event]:
        stated = {(digest.aggregate, digest.result) for digest in self._digests.values()}
        silent = tuple(sorted(self._uploaded - self._digests.keys()))
        needed = self._context.parameters.threshold_of(len(self._uploaded))
        if len(stated) > 1:
            failed = Failed(
                AbortReason.AGGREGATES_DIFFER, detail="peers state different results", repeatable=False
            )
            return self.fail(trigger, _P.CLOSED, failed)
        if len(self._digests) < needed:
            detail = f"{len(self._digests)} peers confirmed the result, {needed} are needed"
            failed = Failed(AbortReason.TIMED_OUT, silent[0], detail)
            return self.fail(trigger, _P.CLOSED, failed)
        self.move(trigger, _P.CLOSED)
        total = self._total if self._learns_sum else None
        self.outcome = Committed(self._survivors, total=total, silent=silent)
        return []
