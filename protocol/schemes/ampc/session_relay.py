"""The server's side of a session's set-up: it passes on seeds that it cannot open, until every peer is ready.

Every peer says when its set-up is complete, and only then a round begins. One that is held up says by whom; if that has
not changed when the time is over, stalled.py beside this file finds whom the next session goes without.

Implements specs/protocol.md, section 4.
"""

from __future__ import annotations

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    Prepared,
    ServerContext,
    handles,
    require_absent,
)
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.transitions import Phase, TransitionTable
from veilsum.protocol.schemes.ampc.messages import SeedsForOthers, SeedsRelayed, SetupReport
from veilsum.protocol.schemes.ampc.stalled import who_stalls


class RelayPhase(Phase):
    RELAYING = "relaying"
    CLOSED = "closed"


class SessionRelay(AttemptMachine):
    """Passes on what it cannot open, and waits until the set-up of every peer is complete."""

    table = TransitionTable(
        "ampc server, set-up",
        RelayPhase.RELAYING,
        {
            (RelayPhase.RELAYING, "start"): (RelayPhase.CLOSED,),
            (RelayPhase.RELAYING, SeedsForOthers): (RelayPhase.RELAYING,),
            (RelayPhase.RELAYING, SetupReport): (RelayPhase.RELAYING, RelayPhase.CLOSED),
            (RelayPhase.RELAYING, "deadline"): (RelayPhase.CLOSED,),
            (RelayPhase.RELAYING, "loss"): (RelayPhase.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._relayed: set[PartyId] = set()
        self._reports: dict[PartyId, SetupReport] = {}

    def start(self, now: float) -> list[Event]:
        context = self._context
        try:
            graph = context.parameters.graph.draw(context.session.members, context.session.id)
            graph.require_safe_for_decomposition()
        except Rejection as problem:
            return self.fail("start", RelayPhase.CLOSED, problem)
        self.deadline = now + context.timing.phase_s
        return []

    @handles(SeedsForOthers)
    def relay(self, sender: PartyId, message: SeedsForOthers, now: float) -> list[Event]:
        require_absent(sender, self._relayed)
        for receiver in message.sealed:
            self._context.session.require_member(receiver)
        self._relayed.add(sender)
        return [
            Send(receiver, SeedsRelayed(self.stamp, {sender: sealed}))
            for receiver, sealed in message.sealed.items()
        ]

    @handles(SetupReport)
    def note_report(self, sender: PartyId, message: SetupReport, now: float) -> list[Event]:
        """The last word of a peer counts, and that its set-up is complete is the last."""
        earlier = self._reports.get(sender)
        if earlier is not None and earlier.complete:
            raise Rejection(AbortReason.REPLAY, "this party's set-up is complete already")
        for other in (*message.lacking, *message.waiting):
            self._context.session.require_member(other)
            if other == sender:
                raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "a peer that waits for itself")
        for owner in message.secrets:
            self._context.session.require_member(owner)
        self._reports[sender] = message
        done = [name for name, report in self._reports.items() if report.complete]
        if len(done) < len(self._context.session.members):
            return []
        self.move(SetupReport, RelayPhase.CLOSED)
        self.outcome = Prepared()
        return []

    def lose(self, party: PartyId, now: float) -> list[Event]:
        detail = f"{party} left the set-up of the session"
        failed = Failed(AbortReason.WITHDRAWN, "", detail, (party,), left_out=(party,))
        return self.fail("loss", RelayPhase.CLOSED, failed)

    def deadline_passed(self, now: float) -> list[Event]:
        failed = who_stalls(self._context.session.members, self._reports)
        return self.fail("deadline", RelayPhase.CLOSED, failed)
