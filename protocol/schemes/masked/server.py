"""The server's machine of one attempt of `masked`: the round, then votes on what came of it.

The phases up to UNMASKING are those of round.py beside this file. Then:

    CERTIFYING           the sum is with all members, who check it and vote on the state that follows

Where nobody votes (threat 'semi-honest' on a k-regular graph) the attempt ends when the sum is out.

Implements specs/chain.md, section 4.
"""

from __future__ import annotations

from dataclasses import replace

from veilsum.protocol.agreed.listing import listed
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    NextPhase,
    ServerContext,
    failure_of,
    handles,
    reason_from_text,
)
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.transitions import TransitionTable, Trigger
from veilsum.protocol.schemes.masked.messages import RoundKeys
from veilsum.protocol.schemes.masked.payload import OpenedSum, WholeMean
from veilsum.protocol.schemes.masked.round import MASKED_SERVER_MOVES, MaskedRound, MaskedServerPhase
from veilsum.protocol.secure_sum.certifying import ResultVotes, SumOpened, SumVote
from veilsum.protocol.secure_sum.group_key import dealer_of
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message

_P = MaskedServerPhase


class MaskedServer(AttemptMachine):
    table = TransitionTable(
        "masked server",
        _P.GATHERING_KEYS,
        {
            **MASKED_SERVER_MOVES,
            (_P.UNMASKING, "work"): (_P.CERTIFYING, _P.CLOSED),
            (_P.CERTIFYING, SumVote): (_P.CERTIFYING, _P.CLOSED),
            (_P.CERTIFYING, "deadline"): (_P.CLOSED,),
            (_P.CERTIFYING, "loss"): (_P.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._round = MaskedRound(context, WholeMean(context))
        self._opened_sum: OpenedSum | None = None
        self._votes: ResultVotes | None = None
        self._without_key: set[PartyId] = set()

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.phase_s
        return self._context.open_round()

    @handles(RoundKeys, SealedShares, MaskedInput, SurvivorSignature, ReleasedShares)
    def take(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        return self._go_on(type(message), self._round.take(self.phase, sender, message, now))

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        if self._votes is not None:
            self._votes.hear_refusal(party, reason)
        if reason_from_text(reason) is AbortReason.BAD_SEAL:
            self._without_key.add(party)
        return self.lose(party, now)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        step = self._round.lose(self.phase, party, now)
        if self.phase is _P.CERTIFYING:
            return self._conclude_when_all_voted("loss")
        return self._go_on("loss", step)

    def deadline_passed(self, now: float) -> list[Event]:
        if self.phase is _P.CERTIFYING:
            return self._conclude("deadline")
        return self._go_on("deadline", self._round.close(self.phase, now))

    def _go_on(self, trigger: Trigger, found: NextPhase | Failed | None) -> list[Event]:
        """If more than may lie could not open their box, the next session goes without the dealer of the group key."""
        if isinstance(found, Failed) and len(self._without_key) > self._context.parameters.colluders:
            dealer = dealer_of(self._context.session.id, self._context.session.members)
            found = replace(found, left_out=(*found.left_out, dealer))
        going_on = self.follow(trigger, found, _P.CLOSED)
        return [*going_on, *self._round.opening(found, self._opened, self._not_opened)]

    def _opened(self, opened: OpenedSum, now: float) -> list[Event]:
        after = opened.stepped.extra
        assert isinstance(after, ChainState)
        self._opened_sum = opened
        context = self._context
        survivors, present = listed(context.roster, context.parameters, self._round.survivors)
        words = SumOpened(self.stamp, survivors, self._round.uploads, present)
        told: list[Event] = [Send(name, words) for name in self._context.session.members]
        if not self._context.point.certifies:
            self.move("work", _P.CLOSED)
            record = self._context.point.record.advanced(after, None)
            self.outcome = replace(self._round.committed(opened), chain=record)
            return told
        self._votes = ResultVotes(self._context, self._round.survivors, after)
        try:
            decided = self._votes.decide()
        except Rejection as lost:
            return self.fail("work", _P.CLOSED, failure_of(lost, repeatable=False))
        self.move("work", _P.CERTIFYING, now + 2 * self._context.timing.phase_s)
        return [decided, *told]

    def _not_opened(self, error: ProtocolError, now: float) -> list[Event]:
        return self.fail("work", _P.CLOSED, self._round.failed(error))

    @handles(SumVote)
    def count(self, sender: PartyId, vote: SumVote, now: float) -> list[Event]:
        assert self._votes is not None
        self._votes.add(sender, vote)
        return self._conclude_when_all_voted(SumVote)

    def _conclude_when_all_voted(self, trigger: Trigger) -> list[Event]:
        assert self._votes is not None
        return [] if self._votes.silent(self._round.awaited) else self._conclude(trigger)

    def _conclude(self, trigger: Trigger) -> list[Event]:
        assert self._votes is not None
        assert self._opened_sum is not None
        found = self._votes.conclude(self._opened_sum.total)
        if isinstance(found, Failed):
            return self.fail(trigger, _P.CLOSED, replace(found, named=self._round.named))
        self.move(trigger, _P.CLOSED)
        self.outcome = replace(found, named=self._round.named)
        return []
