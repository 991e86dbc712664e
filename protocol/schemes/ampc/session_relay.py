"""The server's side of a session's set-up: it passes on seeds that it cannot open, until every peer is ready.

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
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.schemes.ampc.messages import ModelHeld, SeedsForOthers, SeedsRelayed


class RelayPhase(Phase):
    RELAYING = "relaying"
    CLOSED = "closed"


class SessionRelay(AttemptMachine):
    """Passes on what it cannot open, and waits until every peer holds the current model."""

    table = TransitionTable(
        "ampc server, set-up",
        RelayPhase.RELAYING,
        {
            (RelayPhase.RELAYING, "start"): (RelayPhase.CLOSED,),
            (RelayPhase.RELAYING, SeedsForOthers): (RelayPhase.RELAYING,),
            (RelayPhase.RELAYING, ModelHeld): (RelayPhase.RELAYING, RelayPhase.CLOSED),
            (RelayPhase.RELAYING, "deadline"): (RelayPhase.CLOSED,),
            (RelayPhase.RELAYING, "loss"): (RelayPhase.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._relayed: set[PartyId] = set()
        self._held: dict[PartyId, ModelHeld] = {}

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

    @handles(ModelHeld)
    def note_held(self, sender: PartyId, message: ModelHeld, now: float) -> list[Event]:
        require_absent(sender, self._held)
        self._held[sender] = message
        if not self._held.keys() >= self._context.session.hellos.keys():
            return []
        divided = self._divided()
        if divided is not None:
            return self.fail(ModelHeld, RelayPhase.CLOSED, divided)
        self.move(ModelHeld, RelayPhase.CLOSED)
        self.outcome = Prepared()
        return []

    def _divided(self) -> Failed | None:
        """Peers that hold different states go no further together: the fewer are left out, if most agree."""
        by_state: dict[bytes, list[PartyId]] = {}
        for name, held in sorted(self._held.items()):
            by_state.setdefault(held.keyed_hash, []).append(name)
        if len(by_state) < 2:
            return None
        largest = max(by_state.values(), key=len)
        others = tuple(name for name in sorted(self._held) if name not in largest)
        enough = len(largest) >= self._context.parameters.threshold_of(len(self._held))
        detail = f"peers hold different states; {', '.join(others[:10])} differ from most"
        shunned = others if enough else ()
        return Failed(AbortReason.WRONG_MODEL, detail=detail, missing=shunned, left_out=shunned)

    def lose(self, party: PartyId, now: float) -> list[Event]:
        return self._give_up("loss", (party,))

    def deadline_passed(self, now: float) -> list[Event]:
        missing = tuple(name for name in self._context.session.members if name not in self._held)
        return self._give_up("deadline", missing if self._held else ())

    def _give_up(self, trigger: Trigger, missing: tuple[PartyId, ...]) -> list[Event]:
        detail = (
            f"the set-up of the session is incomplete; not ready: {', '.join(missing[:10]) or 'everyone'}"
        )
        return self.fail(trigger, RelayPhase.CLOSED, Failed(AbortReason.TIMED_OUT, "", detail, missing))
