"""A client or peer: answers invitations, checks what the server says, and takes part in one attempt after the other.

A message of another participant can overtake the server's: a neighbour may be in the new session, or in the
next round, before we heard of it. Such messages wait in a small buffer and are looked at again when their
attempt begins; what still does not fit then is refused like anything else.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from veilsum.protocol.chain.asking import StateWanted
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    Outcome,
    ParticipantContext,
    Prepared,
    SumRules,
    WhenTrained,
    drop_stale_work,
    failure_of,
    next_model_of,
    require_same_attempt,
)
from veilsum.protocol.machines.early_messages import EarlyMessages, early_share, is_early, is_early_in_opening
from veilsum.protocol.machines.events import Event, RunFailed, RunFinished, Send, SessionBegan
from veilsum.protocol.machines.local_training import LocalTraining
from veilsum.protocol.machines.on_chain import ParticipantOnChain
from veilsum.protocol.machines.participation import objection_to_done_round
from veilsum.protocol.machines.parting import SILENT_SERVER, ended_early, told_failure
from veilsum.protocol.machines.phases import PARTICIPANT_TABLE, ParticipantPhase
from veilsum.protocol.machines.rules import MachineRules, RoleParts, StartingPoint
from veilsum.protocol.machines.scheme import Scheme, require_equipped, require_machine, require_workable
from veilsum.protocol.machines.session import (
    Farewell,
    Greeting,
    Invitation,
    Knock,
    RoundOpened,
    Session,
    SessionOpened,
    SessionTerms,
    Withdrawn,
    require_model,
    require_model_shape,
    require_no_model,
)
from veilsum.protocol.machines.transitions import Phase, Trigger
from veilsum.protocol.wire.fields import DEFAULT_MAX_INTEGER
from veilsum.protocol.wire.messages import Message, Stamp

KNOCKS_PER_PATIENCE = 20
_OF_THE_SERVER = Invitation | SessionOpened | StateWanted | RoundOpened | Farewell


class ParticipantMachine:
    table = PARTICIPANT_TABLE

    def __init__(self, scheme: Scheme, rules: MachineRules, parts: RoleParts, begin: StartingPoint) -> None:
        require_workable(scheme, rules.parameters, rules.roster)
        require_equipped(scheme, begin.model, parts.equipment, at_server=False)
        self._scheme = scheme
        self._rules = rules
        self._parts = parts
        self.model = begin.model
        self.rounds_done = begin.rounds_done
        self.record = begin.record
        self._chain = ParticipantOnChain(scheme, rules, parts, begin) if scheme.has_chain else None
        self.phase: Phase = ParticipantPhase.KNOCKING
        self.session: Session | None = None
        self._greeting: Greeting | None = None
        self._invitations: set[bytes] = set()
        self._secrets: object = None
        self._machine: AttemptMachine | None = None
        self._last_attempt = (-1, -1)
        self._round_model_hash = b""
        self._training = LocalTraining(rules.parameters.weights)
        self._early = EarlyMessages(early_share(rules.parameters, len(rules.roster.participants)))
        self._deadline: float | None = None
        self._give_up_at = float("inf")

    @property
    def machine(self) -> AttemptMachine | None:
        """The attempt (or set-up) under way."""
        return self._machine

    @property
    def secrets(self) -> object:
        """What the session's set-up left this party with, for it alone; None if there was none."""
        return self._secrets

    def start(self, now: float) -> list[Event]:
        self._give_up_at = now + self._rules.timing.patience_s
        return self._knock(now)

    def next_deadline(self) -> float | None:
        return self._deadline if self._machine is None else self._machine.deadline

    def handle_deadline(self, now: float) -> list[Event]:
        due = self.next_deadline()
        if due is None or now < due:
            return []
        if self._machine is not None:
            return self._settled(self._machine.deadline_passed(now), now)
        if self.phase is ParticipantPhase.KNOCKING and now >= self._give_up_at:
            return self._give_up()
        self._move("deadline", ParticipantPhase.KNOCKING)
        return self._knock(now)

    def receive(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        """Events, or `RemoteProtocolError` with nothing changed."""
        try:
            if self._is_early(sender, message):
                self._early.hold(sender, message)
                return []
            if isinstance(message, _OF_THE_SERVER):
                return self._receive_from_server(sender, message, now)
            machine = self._require_in_attempt(sender, message)
            assert self._greeting is not None
            return self._settled(machine.receive(sender, self._greeting.terms.spelled_out(message), now), now)
        except Rejection as rejection:
            raise rejection.blamed_on(sender) from rejection

    def objection(self, message: Message, refused: RemoteProtocolError) -> list[Event]:
        """What we say of a refusal to a server that would wait for us in vain; nothing of ours changes."""
        in_session = self.session is not None and message.stamp.session == self.session.id
        if self._chain is None:
            return objection_to_done_round(self.rounds_done, message, refused) if in_session else []
        return self._chain.objection(message, refused) if in_session else []

    def _receive_from_server(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        if sender != SERVER:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"{type(message).__name__} comes from the server")
        self.table.require_expected(self.phase, message, sender)
        match message:
            case Invitation():
                return self._greet(message, now)
            case StateWanted():
                return self._hand_over(message, now)
            case SessionOpened():
                return self._enter_session(message, now)
            case RoundOpened():
                return self._enter_round(message, now)
            case _:
                assert isinstance(message, Farewell)
                return self._leave(message)

    def _greet(self, message: Invitation, now: float) -> list[Event]:
        if self._greeting is not None and self._greeting.terms.invitation == message.nonce:
            unanswered = self.phase is ParticipantPhase.GREETING
            return [Send(SERVER, self._greeting.message)] if unanswered else []
        if message.nonce in self._invitations:
            raise Rejection(AbortReason.REPLAY, "an invitation to an earlier session")
        events = self._abandon_attempt("the server opened a new session")
        self._move(Invitation, ParticipantPhase.GREETING)
        terms = SessionTerms(self._rules.roster, self._rules.parameters, message.nonce)
        me, random, done = self._parts.identity, self._parts.random, self.rounds_done
        chain, attempts = (None, ()) if self._chain is None else self._chain.stated()
        self._greeting = Greeting.answer(terms, me, done, random, chain, attempts)
        self._invitations.add(message.nonce)
        self.session = None
        self._be_patient(now)
        return [*events, Send(SERVER, self._greeting.message)]

    def _hand_over(self, message: StateWanted, now: float) -> list[Event]:
        assert self._greeting is not None
        if self._chain is None or message.invitation != self._greeting.terms.invitation:
            raise Rejection(AbortReason.WRONG_SESSION, "the server asks for a state that our hello names not")
        given = self._chain.hand_over(message)
        self._be_patient(now)
        return given

    def _enter_session(self, message: SessionOpened, now: float) -> list[Event]:
        assert self._greeting is not None
        session = self._greeting.accept(message)
        events: list[Event] = [SessionBegan(session.id, session.members)]
        if self._chain is not None:
            events += self._followed(self._chain, self._chain.enter_session(session, message))
        elif message.supported is not None:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "votes, and nobody votes in this scheme")
        self.session = session
        self._last_attempt = (-1, -1)
        self._secrets = None
        self._be_patient(now)
        if (setup := self._scheme.participant_setup(self._context(message.stamp))) is None:
            self._move(SessionOpened, ParticipantPhase.WAITING)
            return events
        self._move(SessionOpened, ParticipantPhase.PREPARING)
        self._machine = setup
        return events + self._settled(setup.start(now), now) + self._replay_early(now)

    def _followed(self, chain: ParticipantOnChain, events: list[Event]) -> list[Event]:
        """The chain may have moved on with these events: its state is ours."""
        if chain.record.position != self.rounds_done:
            self._training.forget()
        self.model, self.rounds_done = chain.state.model, chain.state.position
        return events

    def _enter_round(self, message: RoundOpened, now: float) -> list[Event]:
        stamp = message.stamp
        self._require_new_attempt(stamp)
        taken: list[Event] = []
        if self._chain is not None:
            taken = self._followed(self._chain, self._chain.enter_round(message))
        elif self._scheme.server_holds_model:
            require_model(message, self._rules.parameters.dimension)
            self.model = message.model
        else:
            require_no_model(message)
        self._move(RoundOpened, ParticipantPhase.RUNNING)
        self._last_attempt = (stamp.round, stamp.attempt)
        self._round_model_hash = stamp.model_hash
        self._be_patient(now)
        context = self._context(stamp)
        self._machine = require_machine(self._scheme, self._scheme.participant_round(context))
        entered = [] if self._is_passed_on else [self.record.enter(stamp, context.stated_members)]
        try:
            started = self._machine.start(now)
        except Rejection as refusal:
            started = self._withdraw(refusal, now)
        return [*taken, *entered, *self._settled(started, now), *self._replay_early(now)]

    def _require_new_attempt(self, stamp: Stamp) -> None:
        if self.session is None or stamp.session != self.session.id:
            raise Rejection(AbortReason.WRONG_SESSION)
        shown = f"round {shown_number(stamp.round)}"
        if stamp.round <= self._last_attempt[0] or stamp.round < self.rounds_done:
            raise Rejection(AbortReason.REPLAY, f"{shown} was tried in this session, or is done")
        if stamp.round >= DEFAULT_MAX_INTEGER:
            raise Rejection(AbortReason.WRONG_ROUND, f"{shown} leaves no number for the next")
        if not self._is_passed_on:
            self.record.require_repeatable(stamp.round, self.session.members)
        if self._chain is None and not self._scheme.server_holds_model and stamp.round != self.rounds_done:
            raise Rejection(AbortReason.WRONG_ROUND, f"{shown} begins, we did {self.rounds_done} rounds")

    def _context(self, stamp: Stamp) -> ParticipantContext:
        assert self.session is not None
        assert self._greeting is not None
        return ParticipantContext(
            me=self._parts.identity,
            rules=self._rules,
            random=self._parts.random,
            session=self.session,
            stamp=stamp,
            model=self.model,
            next_model=next_model_of(self._parts.apply, stamp.round),
            box_key=self._greeting.box_key,
            secrets=self._secrets,
            record=self.record,
            train=self._train,
            withdraw=self._withdraw,
            equipment=self._parts.equipment,
            chain=self._chain.point() if self._chain is not None else None,
            sums=self._chain or SumRules(),
        )

    def _train(self, then: WhenTrained, now: float) -> list[Event]:
        """Ask for training; its result is for the attempt that waits for it by then."""
        assert self.model is not None
        machine = self._machine

        def for_this_attempt(
            continuation: Callable[[Any, float], list[Event]],
        ) -> Callable[[Any, float], list[Event]]:
            return lambda given, at: (
                self._settled(continuation(given, at), at) if self._machine is machine else []
            )

        which = (self._last_attempt[0], self._round_model_hash)
        return self._training.request(
            which, self.model, for_this_attempt(then), for_this_attempt(self._withdraw), now
        )

    def _withdraw(self, error: ProtocolError, now: float) -> list[Event]:
        """Leave this attempt and tell the server why, in words that hold no value of ours."""
        machine = self._machine
        if machine is None:
            return []
        machine.outcome = failure_of(error, repeatable=True)
        told = error.reason.value if isinstance(error, Rejection) else getattr(error, "told", "")
        return [Send(SERVER, Withdrawn(machine.stamp, told or type(error).__name__))]

    def _require_in_attempt(self, sender: PartyId, message: Message) -> AttemptMachine:
        machine = self._machine
        if machine is None:
            detail = f"{type(message).__name__} while {self.phase.value}"
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, detail)
        require_same_attempt(sender, message.stamp, machine.stamp)
        if sender != SERVER and (self.session is None or sender not in self.session.hellos):
            raise Rejection(AbortReason.UNKNOWN_PARTY, "not in this session")
        return machine

    def _is_early(self, sender: PartyId, message: Message) -> bool:
        if self.phase in (ParticipantPhase.KNOCKING, ParticipantPhase.GREETING):
            return is_early_in_opening(sender, message, self._rules.roster)
        preparing = self.phase is ParticipantPhase.PREPARING
        return is_early(sender, message, self.session, self._machine, self._last_attempt, preparing=preparing)

    def _replay_early(self, now: float) -> list[Event]:
        events: list[Event] = []
        for sender, message in self._early.take():
            with contextlib.suppress(RemoteProtocolError):
                events += self.receive(sender, message, now)
        return events

    def _settled(self, events: list[Event], now: float) -> list[Event]:
        """Events so far, and what follows from the attempt's outcome if it has one."""
        machine = self._machine
        if machine is None or machine.outcome is None:
            going_on = drop_stale_work(events, lambda: self._machine is machine, self._settled)
            held_up = self._early.hold_any(Invitation, Farewell)
            free = machine is not None and not machine.is_decisive
            return going_on + self._replay_early(now) if held_up and free else going_on
        self._machine = None
        stalled = self.phase is ParticipantPhase.PREPARING and isinstance(machine.outcome, Failed)
        passed = self.phase is ParticipantPhase.RUNNING and self._is_passed_on
        if stalled or passed:
            self.session = None
        self._move("outcome", ParticipantPhase.WAITING)
        self._be_patient(now)
        return events + self._conclude(machine.stamp, machine.outcome) + self._replay_early(now)

    @property
    def _is_passed_on(self) -> bool:
        """Whether this session has one attempt, in which nobody uploads."""
        return self.session is not None and self.session.supported is not None

    def _conclude(self, stamp: Stamp, outcome: Outcome) -> list[Event]:
        match outcome:
            case Committed():
                return self._commit(stamp, outcome)
            case Failed():
                return [outcome.event(stamp), Send(SERVER, Knock(Stamp()))]
            case Prepared():
                self._secrets = outcome.secrets
                if self._chain is None or outcome.chain is None:
                    return []
                return self._followed(self._chain, self._chain.take_over(outcome.chain))

    def _commit(self, stamp: Stamp, outcome: Committed) -> list[Event]:
        if self._chain is not None and outcome.chain is not None:
            self._chain.commit(outcome.chain)
        if outcome.model is not None:
            self.model = self._rules.agreed_model(outcome.model)
        self.rounds_done = stamp.round + 1
        self.record.remember(frozenset(outcome.members))
        self._training.forget()
        return [outcome.event(stamp)]

    def _abandon_attempt(self, why: str) -> list[Event]:
        machine, self._machine = self._machine, None
        if machine is None or self.phase is not ParticipantPhase.RUNNING:
            return []
        return [Failed(AbortReason.WITHDRAWN, SERVER, why).event(machine.stamp)]

    def _leave(self, message: Farewell) -> list[Event]:
        if self.phase is ParticipantPhase.FINISHING:
            return []
        taken = self._take_parting_model(message) if message.completed else []
        events = [*taken, *self._abandon_attempt("the server ended the run")]
        self._move(Farewell, ParticipantPhase.FINISHING)
        self._deadline = None
        if not message.completed:
            return [*events, self._parts.explained(told_failure(message))]
        early = ended_early(self._parts.identity.name, self.rounds_done, message, self._rules.rounds)
        return [*events, early or RunFinished(self.rounds_done, self.model)]

    def _take_parting_model(self, message: Farewell) -> list[Event]:
        if self._chain is not None:
            return self._followed(self._chain, self._chain.take_parting_state(message))
        if self._scheme.server_holds_model:
            require_model_shape(message.model, self._rules.parameters.dimension)
            self.model, self.rounds_done = message.model, message.stamp.round
        return []

    def _knock(self, now: float) -> list[Event]:
        self._deadline = now + self._rules.timing.patience_s / KNOCKS_PER_PATIENCE
        return [Send(SERVER, Knock(Stamp()))]

    def _be_patient(self, now: float) -> None:
        """The server was heard: wait for its next word for as long as a whole phase of others may take."""
        self._deadline = now + self._rules.timing.patience_s
        self._give_up_at = now + 2 * self._rules.timing.patience_s

    def _give_up(self) -> list[Event]:
        self._move("deadline", ParticipantPhase.FINISHING)
        self._deadline = None
        return [self._parts.explained(RunFailed(AbortReason.TIMED_OUT, SERVER, SILENT_SERVER))]

    def _move(self, trigger: Trigger, target: Phase) -> None:
        self.table.require_move(self.phase, trigger, target)
        self.phase = target
