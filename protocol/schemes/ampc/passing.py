"""Peers pass a result on: protocol/secure_sum/passing.py among parties of whom the server sees no hash.

The server knows that more peers voted than may lie, by the votes without hashes; which state they voted for, and the
state itself, the others are told by those who voted, in boxes of their own:

    server -> peers   round.opened        of a session that was opened with the votes
    voter -> other    ampc.vote-shown     the hash of the state, and the vote under the ballot with hashes, boxed
    other -> voter    ampc.model-wanted   once more peers than may lie voted for one state
    voter -> other    ampc.model-given    that state, boxed
    other -> server   ampc.vote-added     its vote under the ballot without hashes
    server -> peers   round.closed        all have voted, or time is over

    AWAITING_VOTES   votes with hashes are due
    FETCHING         the state that they name is due
    VOTED            we voted, or have no vote; others may still ask us

That ends the session. The votes are in the hellos of the next one: those without hashes are the certificate of its
position, and its set-up makes one of the others, as after any power cut. Boxes are between two peers, under the keys
of their hellos: no seeds are exchanged for a session without a sum.

Implements specs/chain.md, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import SupportedBallot, Vote, VoteCount
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import Purpose
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    ParticipantContext,
    Prepared,
    ServerContext,
    handles,
    reason_from_text,
    require_absent,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event, Send
from veilsum.protocol.machines.session import RoundClosed, require_model_shape
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.schemes.ampc.messages import ModelGiven, ModelWanted, StateContent
from veilsum.protocol.secure_sum.certifying import uncertified
from veilsum.protocol.secure_sum.passing import require_true_of_us
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.envelope import join
from veilsum.protocol.wire.messages import Length, MaxLength, Message, Stamp, kind_of, message

_HASH_BYTES, _SIGNATURE_BYTES = 32, 64


@message("ampc.vote-shown")
@dataclass(frozen=True, slots=True)
class VoteShown(Message):
    """The hash of the state that a peer voted for, and its signature under the ballot with hashes, boxed."""

    stamp: Stamp
    box: Annotated[bytes, MaxLength(128)]


@message("ampc.vote-added")
@dataclass(frozen=True, slots=True)
class VoteAdded(Message):
    """A vote that leans on those of others, under the ballot without hashes."""

    states_result = True

    stamp: Stamp
    vote: Annotated[bytes, Length(64)]


class PassingRelayPhase(Phase):
    COUNTING = "counting"
    CLOSED = "closed"


_S = PassingRelayPhase


class PassingRelay(AttemptMachine):
    """The server counts votes without hashes; the next session's hellos show them to everyone."""

    table = TransitionTable(
        "server of peers, passing a result on",
        _S.COUNTING,
        {
            (_S.COUNTING, VoteAdded): (_S.COUNTING, _S.CLOSED),
            (_S.COUNTING, "deadline"): (_S.CLOSED,),
            (_S.COUNTING, "loss"): (_S.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext, supported: SupportedBallot) -> None:
        super().__init__(context.stamp.without_model())
        self._context = context
        point, ballot = context.point, supported.ballot
        self._count = VoteCount(point.ballots, context.roster, context.parameters, ballot)
        for name, signature in supported.signatures.items():
            self._count.add(name, signature, sure=True)
        here = context.session.voters(self.stamp.round).intersection(ballot.electorate)
        at_hand = {name for name, done in context.session.positions.items() if done == self.stamp.round}
        self._awaited = set(here & at_hand) - supported.signatures.keys()

    def start(self, now: float) -> list[Event]:
        self.deadline = now + 2 * self._context.timing.phase_s
        return self._context.open_round()

    @handles(VoteAdded)
    def count(self, sender: PartyId, added: VoteAdded, now: float) -> list[Event]:
        require_absent(sender, self._count.signatures)
        self._count.add(sender, added.vote)
        return self._leave_out(VoteAdded, sender)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        return self._leave_out("loss", party)

    def _leave_out(self, trigger: Trigger, party: PartyId) -> list[Event]:
        self._awaited.discard(party)
        return [] if self._awaited else self._conclude(trigger)

    def deadline_passed(self, now: float) -> list[Event]:
        return self._conclude("deadline")

    def _conclude(self, trigger: Trigger) -> list[Event]:
        certified = self._count.certificate is not None
        failed = uncertified(self._context, self._count, tuple(sorted(self._awaited)), {})
        reason = "" if certified else failed.reason.value
        closed = RoundClosed(self.stamp, certified, self._count.ballot.survivors, b"", reason)
        told: list[Event] = [Send(name, closed) for name in self._context.session.members]
        self.move(trigger, _S.CLOSED)
        self.outcome = Prepared() if certified else failed
        return told


class PassingPeerPhase(Phase):
    AWAITING_VOTES = "awaiting-votes"
    FETCHING = "fetching"
    VOTED = "voted"
    CLOSED = "closed"


_P = PassingPeerPhase
_OPEN = (_P.AWAITING_VOTES, _P.FETCHING, _P.VOTED)


class PassingPeer(AttemptMachine):
    table = TransitionTable(
        "peer, passing a result on",
        _P.AWAITING_VOTES,
        {
            (_P.AWAITING_VOTES, "start"): (_P.AWAITING_VOTES, _P.VOTED),
            (_P.AWAITING_VOTES, VoteShown): (_P.AWAITING_VOTES, _P.FETCHING),
            (_P.FETCHING, VoteShown): (_P.FETCHING,),
            (_P.VOTED, VoteShown): (_P.VOTED,),
            (_P.FETCHING, ModelGiven): (_P.VOTED,),
            (_P.VOTED, ModelGiven): (_P.VOTED,),
            (_P.VOTED, ModelWanted): (_P.VOTED,),
            **{(phase, RoundClosed): (_P.CLOSED,) for phase in _OPEN},
            **{(phase, "deadline"): (_P.CLOSED,) for phase in (_P.AWAITING_VOTES, _P.VOTED)},
            (_P.FETCHING, "deadline"): (_P.FETCHING, _P.CLOSED),
        },
    )

    def __init__(self, context: ParticipantContext, supported: SupportedBallot) -> None:
        super().__init__(context.stamp.without_model())
        self._context = context
        self._supported = supported
        self._counts: dict[bytes, VoteCount] = {}
        self._shown: set[PartyId] = set()
        self._asked: list[PartyId] = []
        self._given: set[PartyId] = set()
        self._give_up_at = 0.0

    def start(self, now: float) -> list[Event]:
        """Show our vote to those who lack it, or wait for those of others."""
        context, record = self._context, self._context.point.record
        require_true_of_us(context, self._supported.ballot)
        if record.vote is not None and record.vote.ballot != self._supported.ballot:
            raise Rejection(AbortReason.POSITION_LOST, "this party voted otherwise")
        self._give_up_at = now + context.timing.patience_s
        waits = record.vote is None and record.votes_here and context.name in context.point.electorate
        self.move("start", _P.AWAITING_VOTES if waits else _P.VOTED, self._next_look(now))
        sealed = record.sealed_vote
        knowing = {context.name, *self._supported.signatures}
        lacking = [name for name in context.session.members if name not in knowing]
        return [] if sealed is None else [Send(name, self._show(name, sealed)) for name in lacking]

    def _next_look(self, now: float) -> float:
        """So often that as many as may lie, and one more, are asked before the server's time is over."""
        step = self._context.timing.phase_s / (self._context.parameters.colluders + 1)
        return min(now + step, self._give_up_at) if self.phase is _P.FETCHING else self._give_up_at

    def _secret(self, sender: PartyId, receiver: PartyId, use: str) -> Secret:
        return self._context.box_secret(Purpose.SEAL, self.stamp, sender, receiver, use)

    def _show(self, other: PartyId, vote: Vote) -> VoteShown:
        secret = self._secret(self._context.name, other, "passed-vote")
        return VoteShown(self.stamp, seal_box(secret, vote.ballot.after + vote.signature, b""))

    @handles(VoteShown)
    def count_vote(self, sender: PartyId, shown: VoteShown, now: float) -> list[Event]:
        if sender not in self._supported.signatures:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE, "the votes that the server showed have none of its"
            )
        require_absent(sender, self._shown)
        plain = open_box(self._secret(sender, self._context.name, "passed-vote"), shown.box, b"")
        if len(plain) != _HASH_BYTES + _SIGNATURE_BYTES:
            raise Rejection(AbortReason.BAD_CERTIFICATE, "a hash and a signature are due")
        after, signature = plain[:_HASH_BYTES], plain[_HASH_BYTES:]
        count = self._counts.get(after) or self._new_count(after)
        count.add(sender, signature)
        self._counts[after] = count
        self._shown.add(sender)
        if self.phase is not _P.AWAITING_VOTES or count.supported is None:
            return []
        self.move(VoteShown, _P.FETCHING, self.deadline)
        return self._ask(now)

    def _new_count(self, after: bytes) -> VoteCount:
        context, point = self._context, self._context.point
        ballot = replace(self._supported.ballot, before=point.state.hash, after=after)
        return VoteCount(point.ballots, context.roster, context.parameters, ballot)

    @property
    def _borne(self) -> VoteCount | None:
        """The ballot that more voted for than may lie; there is one at most, if honest parties saw one sum."""
        return next((one for one in self._counts.values() if one.supported is not None), None)

    def _ask(self, now: float) -> list[Event]:
        """Ask one more of those who voted for the state, if there is one."""
        self.deadline = self._next_look(now)
        borne = self._borne
        assert borne is not None
        voter = next((name for name in sorted(borne.signatures) if name not in self._asked), None)
        if voter is None:
            return []
        self._asked.append(voter)
        return [Send(voter, ModelWanted(self.stamp))]

    @handles(ModelWanted)
    def give_state(self, sender: PartyId, message: ModelWanted, now: float) -> list[Event]:
        state = self._context.point.record.next_state
        require_absent(sender, self._given)
        if state is None or sender in self._supported.signatures:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE, f"{sender} asks for a state that is not to be given"
            )
        content = StateContent(self.stamp, state.before, state.model, np.frombuffer(state.memory, np.uint8))
        secret = self._secret(self._context.name, sender, "passed-state")
        self._given.add(sender)
        box = seal_box(secret, join(encode_message(content)), b"")
        return [Send(sender, ModelGiven(self.stamp, np.frombuffer(box, dtype=np.uint8)))]

    @handles(ModelGiven)
    def take_state(self, sender: PartyId, given: ModelGiven, now: float) -> list[Event]:
        """Vote for the state that the votes name; one that comes when another was faster is not looked at."""
        if sender not in self._asked:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "we did not ask this peer for a state")
        if self.phase is _P.VOTED:
            return []
        borne, after = self._borne, self._opened(sender, given)
        assert borne is not None
        if after.hash != borne.ballot.after:
            raise Rejection(AbortReason.WRONG_MODEL, "the state that is passed on is not the one voted for")
        context, point = self._context, self._context.point
        vote = Vote.cast(context.me, point.ballots, self._supported.ballot)
        sealed = Vote.cast(context.me, point.ballots, borne.ballot)
        try:
            record = point.cast(vote, sealed, after)
        except Rejection as lost:
            return context.withdraw(lost, now)
        self.move(ModelGiven, _P.VOTED, self._give_up_at)
        decided = DecisionMade(VoteCast(self.stamp.round, self.stamp.attempt, record))
        return [decided, Send(SERVER, VoteAdded(self.stamp, vote.signature))]

    def _opened(self, sender: PartyId, given: ModelGiven) -> ChainState:
        secret, point = self._secret(sender, self._context.name, "passed-state"), self._context.point
        plain = open_box(secret, given.box.tobytes(), b"")
        content = decode_message(kind_of(StateContent), self.stamp, plain)
        assert isinstance(content, StateContent)
        require_model_shape(content.model, self._context.parameters.dimension)
        memory = content.memory.tobytes()
        return ChainState.of(point.chain, self.stamp.round + 1, point.state.hash, content.model, memory)

    @handles(RoundClosed)
    def close(self, sender: PartyId, closed: RoundClosed, now: float) -> list[Event]:
        """The session is over, whatever the server says: what became of the votes, hellos show."""
        require_from_server(sender)
        self.move(RoundClosed, _P.CLOSED)
        why = "the server closed the round without a result"
        self.outcome = (
            Prepared() if closed.committed else Failed(reason_from_text(closed.reason), SERVER, why)
        )
        return []

    def deadline_passed(self, now: float) -> list[Event]:
        if now >= self._give_up_at:
            return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
        return self._ask(now)
