"""A peer's side of a session's set-up: exchange sealed seeds, then make sure that everyone starts from one state.

    EXCHANGING   seeds of the other members are due
    FETCHING     we are behind: the certified state is due from a peer
    COMPARING    everyone must say that it holds the certified state

The server hears when we are done. It also hears, from half of the time of a phase on, who holds us up: lacking seeds,
lacking or unreadable statements, another state than the certified one. We go on waiting; whether the session goes on,
and without whom the next one is opened, the server decides. The state is asked of one holder after the other, so that
one that does not answer, or gives another state, keeps nobody behind.

Seeds reach neighbours directly and all others through the server; either way they are sealed to the receiver's RSA key
and signed by the sender. A share secret is for one neighbour; the common secret of a peer is for everyone, and all of
them together are the group key of the session (and, under `ampc`, the biases). Which state that everyone starts from
is the business of common_state.py beside this file.

Implements specs/protocol.md, section 4.
"""

from __future__ import annotations

import contextlib

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.crypto.sealing import open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    ParticipantContext,
    Prepared,
    handles,
    require_absent,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import Event, Send, Warned
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.schemes.ampc.common_state import CommonState
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, group_key_of
from veilsum.protocol.schemes.ampc.messages import (
    SEEDS_DOMAIN,
    ModelGiven,
    ModelHeld,
    ModelWanted,
    SealedRecord,
    SeedsForNeighbour,
    SeedsForOthers,
    SeedsRelayed,
    SetupReport,
    seal_label,
    sealed_digest,
    secret_hash,
)
from veilsum.protocol.secure_sum.participant import SEED_BYTES, fresh_seed


class SetupPhase(Phase):
    EXCHANGING = "exchanging"
    FETCHING = "fetching"
    COMPARING = "comparing"
    CLOSED = "closed"


_P = SetupPhase
_OPEN = (_P.EXCHANGING, _P.FETCHING, _P.COMPARING)


class SessionSetup(AttemptMachine):
    table = TransitionTable(
        "ampc peer, set-up",
        _P.EXCHANGING,
        {
            (_P.EXCHANGING, "start"): (_P.FETCHING, _P.COMPARING, _P.CLOSED),
            (_P.EXCHANGING, SeedsForNeighbour): _OPEN,
            (_P.EXCHANGING, SeedsRelayed): _OPEN,
            **{(phase, ModelHeld): (phase,) for phase in _OPEN},
            **{(phase, ModelWanted): (phase,) for phase in (_P.EXCHANGING, _P.COMPARING)},
            (_P.FETCHING, ModelGiven): (_P.COMPARING,),
            (_P.COMPARING, ModelGiven): (_P.COMPARING,),
            (_P.COMPARING, "comparison"): (_P.CLOSED,),
            **{(phase, "deadline"): (phase, _P.CLOSED) for phase in _OPEN},
        },
    )

    def __init__(self, context: ParticipantContext, *, with_bias: bool) -> None:
        """`with_bias`: the common secrets are biases, too."""
        super().__init__(context.stamp)
        self._context = context
        self._with_bias = with_bias
        self._graph: Graph | None = None
        self._given: dict[PartyId, Secret] = {}
        self._taken: dict[PartyId, Secret] = {}
        self._common: dict[PartyId, Secret] = {}
        self._early: dict[PartyId, ModelHeld] = {}
        self._wanting: list[PartyId] = []
        self._asked: list[PartyId] = []
        self._states: CommonState | None = None
        self._began = 0.0
        self._reported: SetupReport | None = None

    def start(self, now: float) -> list[Event]:
        context = self._context
        self._began = now
        self.deadline = self._next_look(now)
        try:
            self._graph = context.parameters.graph.draw(context.session.members, context.session.id)
            self._graph.require_safe_for_decomposition()
        except Rejection as problem:
            return self.fail("start", _P.CLOSED, problem)
        self._common[context.name] = fresh_seed(context)
        self._given = {other: fresh_seed(context) for other in self._graph.neighbours_of(context.name)}
        events: list[Event] = [
            Send(other, SeedsForNeighbour(self.stamp, self._sealed_for(other))) for other in self._given
        ]
        strangers = [other for other in context.session.members if other not in (context.name, *self._given)]
        if strangers:
            sealed = {other: self._sealed_for(other) for other in strangers}
            events.append(Send(SERVER, SeedsForOthers(self.stamp, sealed)))
        return events

    def _sealed_for(self, other: PartyId) -> SealedRecord:
        """The share secret for a neighbour, then our common secret, under the receiver's RSA key and our signature."""
        context = self._context
        parts = [self._given[other]] if other in self._given else []
        parts.append(self._common[context.name])
        rsa = context.roster.identity(other).rsa
        if rsa is None:
            raise Rejection(AbortReason.BAD_KEY, f"{other} has no RSA key in the roster")
        label = seal_label(self.stamp, context.name, other)
        ciphertext = seal(rsa, b"".join(part.reveal() for part in parts), label, context.random)
        signature = context.me.signing.sign(SEEDS_DOMAIN, sealed_digest(label, ciphertext))
        return SealedRecord(ciphertext, signature)

    def _open_seeds(self, sender: PartyId, record: SealedRecord, parts: int) -> list[Secret]:
        context = self._context
        label = seal_label(self.stamp, sender, context.name)
        context.roster.verify(sender, SEEDS_DOMAIN, sealed_digest(label, record.ciphertext), record.signature)
        assert context.me.rsa is not None
        plain = open_sealed(context.me.rsa, record.ciphertext, label).reveal()
        if len(plain) != parts * SEED_BYTES:
            raise Rejection(AbortReason.BAD_SEAL, f"expected {parts} seeds of {SEED_BYTES} bytes")
        return [Secret(plain[at : at + SEED_BYTES]) for at in range(0, len(plain), SEED_BYTES)]

    @handles(SeedsForNeighbour)
    def take_from_neighbour(self, sender: PartyId, message: SeedsForNeighbour, now: float) -> list[Event]:
        if sender not in self._given:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "share seeds of a party that is not a neighbour")
        require_absent(sender, self._taken)
        self._taken[sender], self._common[sender] = self._open_seeds(sender, message.sealed, 2)
        return self._after_seeds(SeedsForNeighbour, now)

    @handles(SeedsRelayed)
    def take_relayed(self, sender: PartyId, message: SeedsRelayed, now: float) -> list[Event]:
        require_from_server(sender)
        opened = {}
        for origin, record in message.sealed.items():
            if origin in self._given or origin not in self._context.session.hellos:
                raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"relayed seeds of {origin}")
            require_absent(origin, self._common)
            opened[origin] = self._open_seeds(origin, record, 1)[0]
        self._common |= opened
        return self._after_seeds(SeedsRelayed, now)

    def _after_seeds(self, trigger: Trigger, now: float) -> list[Event]:
        if self._common.keys() != set(self._context.session.members):
            return []
        self._states = states = CommonState(self._context, group_key_of(self._common))
        behind = states.held is None
        self.move(trigger, _P.FETCHING if behind else _P.COMPARING, self.deadline)
        events = [] if behind else self._state_held(states)
        for sender, held in self._early.items():
            with contextlib.suppress(Rejection):
                states.note(sender, held)
        return events + self._go_on(states, now)

    def _state_held(self, states: CommonState) -> list[Event]:
        held = states.statement()
        states.note(self._context.name, held)
        others = [name for name in self._context.session.members if name != self._context.name]
        answers = [Send(name, states.give(name)) for name in self._wanting]
        return [*(Send(name, held) for name in others), *answers]

    @handles(ModelHeld)
    def note_held(self, sender: PartyId, message: ModelHeld, now: float) -> list[Event]:
        self._context.session.require_member(sender)
        require_absent(sender, self._early)
        if self._states is not None:
            self._states.note(sender, message)
        self._early[sender] = message
        return [] if self._states is None else self._go_on(self._states, now)

    def _go_on(self, states: CommonState, now: float) -> list[Event]:
        """Ask for the state if we are behind, and end as soon as everyone holds it."""
        if self.phase is _P.FETCHING:
            return [] if self._asked else self._ask(states)
        if states.silent or states.disagreeing():
            return []
        if not states.up_to_date:
            detail = "too few of those who voted for the state of this position are here to prove which it is"
            return self._context.withdraw(Rejection(AbortReason.NO_QUORUM, detail), now)
        self.move("comparison", _P.CLOSED)
        self.outcome = Prepared(self._secrets(states), self._moved_on(states))
        return [Send(SERVER, SetupReport(self.stamp))]

    def _ask(self, states: CommonState) -> list[Event]:
        """Ask one more of those who hold the certified state, if there is one."""
        provider = states.provider(self._asked)
        if provider is None:
            return []
        self._asked.append(provider)
        return [Send(provider, ModelWanted(self.stamp))]

    def _moved_on(self, states: CommonState) -> ChainRecord | None:
        return states.record if states.record is not self._context.point.record else None

    def _secrets(self, states: CommonState) -> SessionSecrets:
        assert self._graph is not None
        biases = self._common if self._with_bias else {}
        return SessionSecrets(self._graph, states.group, self._given, self._taken, biases)

    @handles(ModelWanted)
    def answer_want(self, sender: PartyId, message: ModelWanted, now: float) -> list[Event]:
        self._context.session.require_member(sender)
        require_absent(sender, self._wanting)
        given = [] if self._states is None else [Send(sender, self._states.give(sender))]
        self._wanting.append(sender)
        return [*given]

    @handles(ModelGiven)
    def adopt_state(self, sender: PartyId, message: ModelGiven, now: float) -> list[Event]:
        """Take the state over; one that comes when another holder was faster is not looked at."""
        if sender not in self._asked or self._states is None:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "we did not ask this peer for its state")
        if self.phase is _P.COMPARING:
            return []
        voted = self._states.adopt(sender, message)
        self.move(ModelGiven, _P.COMPARING, self.deadline)
        return voted + self._state_held(self._states) + self._go_on(self._states, now)

    def deadline_passed(self, now: float) -> list[Event]:
        """Ask another holder, say who holds us up, and give up when the server has been silent for too long."""
        timing = self._context.timing
        if now >= self._began + timing.patience_s:
            return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
        self.deadline = self._next_look(now)
        states = self._states
        events = self._ask(states) if states is not None and self.phase is _P.FETCHING else []
        report = self._report()
        if now < self._began + timing.phase_s / 2 or report == self._reported:
            return events
        self._reported = report
        divided = states.in_words() if states is not None else ""
        return [*events, *([Warned(divided)] if divided else []), Send(SERVER, report)]

    def _next_look(self, now: float) -> float:
        """So often that as many holders as may lie, and one more, are asked before we say who holds us up."""
        timing, times = self._context.timing, 4 * (self._context.parameters.colluders + 1)
        looked = round((now - self._began) * times / timing.phase_s)
        return self._began + (timing.phase_s / times * (looked + 1) if looked < times else timing.patience_s)

    def _report(self) -> SetupReport:
        """Who holds us up, as far as we can see."""
        secrets = {owner: secret_hash(self.stamp, owner, one) for owner, one in sorted(self._common.items())}
        states, me = self._states, self._context.name
        if states is None:
            lacking = tuple(name for name in self._context.session.members if name not in self._common)
            return SetupReport(self.stamp, True, lacking, (), secrets)
        behind = self.phase is _P.FETCHING or me in states.disagreeing()
        lacking = tuple(name for name in states.disagreeing() if name != me)
        waiting = () if self._asked and behind else tuple(name for name in states.silent if name != me)
        return SetupReport(self.stamp, behind, lacking, waiting, secrets)
