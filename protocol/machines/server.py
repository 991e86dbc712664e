"""The server: opens sessions, runs one attempt after the other, and keeps the model if the scheme lets it.

The server decides nothing about safety: every participant checks for itself. It decides when a wait is over
and what comes next: the next round; a new session, if someone left, came or must be done without; or the
end.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from veilsum.protocol.agreed.parameters import Rekey
from veilsum.protocol.chain.asking import StateGiven
from veilsum.protocol.chain.hellos import NONCE_BYTES, HelloRecord
from veilsum.protocol.crypto.agreement import require_new_key
from veilsum.protocol.errors import AbortReason, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    Prepared,
    ServerContext,
    drop_stale_work,
    failure_of,
    next_model_of,
    require_same_attempt,
)
from veilsum.protocol.machines.events import (
    AttemptBegan,
    Event,
    PartyNamed,
    RunFailed,
    RunFinished,
    Send,
)
from veilsum.protocol.machines.on_chain import ServerOnChain, hash_held, votes_not_shown
from veilsum.protocol.machines.parting import HOPELESS, DoneWithout, Guests, LostState, Parting
from veilsum.protocol.machines.phases import SERVER_TABLE, ServerPhase
from veilsum.protocol.machines.rules import MachineRules, RoleParts, StartingPoint
from veilsum.protocol.machines.scheme import Scheme, require_equipped, require_machine, require_workable
from veilsum.protocol.machines.session import (
    Farewell,
    Hello,
    Invitation,
    Knock,
    RoundClosed,
    Session,
    SessionTerms,
    Withdrawn,
)
from veilsum.protocol.machines.transitions import Phase, Trigger
from veilsum.protocol.randomness import require_random
from veilsum.protocol.wire.messages import Message, Stamp


class ServerMachine:
    table = SERVER_TABLE

    def __init__(self, scheme: Scheme, rules: MachineRules, parts: RoleParts, begin: StartingPoint) -> None:
        require_workable(scheme, rules.parameters, rules.roster)
        require_equipped(scheme, begin.model, parts.equipment, at_server=True)
        self._scheme = scheme
        self._rules = rules
        self._parts = parts
        self.model = begin.model if scheme.server_holds_model else None
        self._chain = ServerOnChain(scheme, rules, parts, begin) if scheme.has_chain else None
        self._peers_hold_chain = scheme.has_chain and not scheme.server_holds_model
        self._parting = Parting(scheme, parts, self._chain)
        self._holding: frozenset[PartyId] = frozenset()
        self._model_hash = hash_held(self.model, self._chain)
        self.rounds_done = self._rounds_told = begin.rounds_done
        self.attempt = begin.attempt
        self._record = begin.record
        self.phase: Phase = ServerPhase.IDLING
        self.session: Session | None = None
        self._terms = SessionTerms(rules.roster, rules.parameters, b"")
        self._hellos: dict[PartyId, HelloRecord] = {}
        self._expected: frozenset[PartyId] = frozenset(rules.roster.participants)
        self._knocking: set[PartyId] = set()
        self._lost: set[PartyId] = set()
        self._without = DoneWithout(rules.parameters, self._chain)
        self._lost_state = LostState(rules, self._chain)
        self._guests = Guests(rules, begin.record, self._chain, self._without)
        self._behind: frozenset[PartyId] = frozenset()
        self._opening_deadline: float | None = None
        self.waiting_since: float | None = None
        self._machine: AttemptMachine | None = None
        self._failed: Failed | None = None
        self._failures = 0

    @property
    def machine(self) -> AttemptMachine | None:
        """The attempt (or set-up) under way."""
        return self._machine

    def start(self, now: float) -> list[Event]:
        if self.rounds_done >= self._rules.rounds and not self._peers_hold_chain:
            return self._finish("start")
        return self._open("start", now)

    def next_deadline(self) -> float | None:
        if self.phase is ServerPhase.OPENING:
            return self._opening_deadline
        return self._machine.deadline if self._machine is not None else None

    def handle_deadline(self, now: float) -> list[Event]:
        due = self.next_deadline()
        if due is None or now < due:
            return []
        if self.phase is ServerPhase.OPENING:
            return self._close_opening("deadline", now)
        assert self._machine is not None
        return self._settled(self._machine.deadline_passed(now), now)

    def receive(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        """Events, or `RemoteProtocolError` with nothing changed."""
        if isinstance(message, Knock | Hello | Withdrawn | StateGiven):
            self.table.require_expected(self.phase, message, sender)
            try:
                return self._receive_own(sender, message, now)
            except Rejection as rejection:
                raise rejection.blamed_on(sender) from rejection
        machine = self._require_in_attempt(sender, message)
        return self._settled(machine.receive(sender, message, now), now)

    def _receive_own(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        self._rules.roster.require_participant(sender)
        match message:
            case Knock():
                return self._answer_knock(sender)
            case Hello():
                return self._admit(sender, message, now)
            case StateGiven():
                regained = self._lost_state.take(sender, message, self.attempt)
                return regained + self._close_opening(StateGiven, now)
            case _:
                assert isinstance(message, Withdrawn)
                machine = self._require_in_attempt(sender, message)
                self._lost.add(sender)
                warning = self._parting.hear_withdrawal(sender, message.reason, self.rounds_done)
                return [warning, *self._settled(machine.hear_withdrawal(sender, message.reason, now), now)]

    def _require_in_attempt(self, sender: PartyId, message: Message) -> AttemptMachine:
        machine = self._machine
        if machine is None:
            detail = f"{type(message).__name__} while {self.phase.value}"
            raise RemoteProtocolError(sender, AbortReason.UNEXPECTED_MESSAGE, detail)
        require_same_attempt(sender, message.stamp, machine.stamp)
        if self.session is None or sender not in self.session.hellos:
            raise RemoteProtocolError(sender, AbortReason.UNKNOWN_PARTY, "not in this session")
        return machine

    def _open(self, trigger: Trigger, now: float) -> list[Event]:
        self.waiting_since = now if self.waiting_since is None else self.waiting_since
        self._move(trigger, ServerPhase.OPENING)
        self._machine = None
        self.session = None
        self._terms = replace(self._terms, invitation=require_random(self._parts.random, NONCE_BYTES))
        self._hellos = {}
        if self._chain is not None:
            self._chain.open()
        self._opening_deadline = now + self._rules.timing.opening_s
        invitation = Invitation(Stamp(), self._terms.invitation)
        everyone = self._rules.roster.participants
        return [Send(name, self._guests.dismissal(name, self.rounds_done) or invitation) for name in everyone]

    def _answer_knock(self, sender: PartyId) -> list[Event]:
        dismissed = self._guests.dismissal(sender, self.rounds_done)
        if dismissed is not None:
            return [Send(sender, dismissed)]
        if self.phase is ServerPhase.OPENING:
            return [Send(sender, Invitation(Stamp(), self._terms.invitation))]
        if self.phase is ServerPhase.FINISHING:
            return [Send(sender, self._farewell(lacks_it=True))]
        if self._guests.may_knock(sender, self.rounds_done):
            self._knocking.add(sender)
        return []

    def _admit(self, sender: PartyId, hello: Hello, now: float) -> list[Event]:
        """Take a hello in; one that comes too late for this session is a knock at the next."""
        if hello.invitation != self._terms.invitation:
            raise Rejection(AbortReason.WRONG_SESSION, "the hello answers another invitation")
        known = self._hellos.get(sender)
        if known is not None and known != hello.hello:
            raise Rejection(AbortReason.EQUIVOCATION, "two different hellos for one invitation")
        self._terms.verify_hello(sender, hello.hello)
        known_keys = ((name, one.box_key) for name, one in self._hellos.items())
        require_new_key(sender, hello.hello.box_key, known_keys)
        if self.phase is not ServerPhase.OPENING or sender not in self._guests.admissible(self.rounds_done):
            if known is None and self._guests.may_knock(sender, self.rounds_done):
                self._knocking.add(sender)
            return self._guests.left_out(sender, self.rounds_done)
        if self._chain is not None:
            self._chain.admit(sender, hello)
        self._hellos[sender] = hello.hello
        self._guests.heard(sender)
        awaited = self._expected & self._guests.welcome(self.rounds_done)
        if awaited <= self._hellos.keys() and self._guests.all_is_said(self._hellos, self.rounds_done):
            return self._close_opening(Hello, now)
        return []

    def _close_opening(self, trigger: Trigger, now: float) -> list[Event]:
        try:
            asking = self._lost_state.ask(self._hellos, self._terms.invitation, now)
        except Rejection as problem:
            return self._wait_or_abandon(trigger, failure_of(problem), now)
        if asking is not None:
            asked, self._opening_deadline = asking
            return asked
        events = self._catch_up()
        lacking = self._peers_hold_chain and self._guests.lack_state(self._hellos, self.rounds_done)
        if self.rounds_done >= self._rules.rounds and not lacking:
            return events + self._finish(trigger)
        if (too_few := self._guests.too_few(self._hellos, self.rounds_done)) is not None:
            return events + self._wait_or_abandon(trigger, too_few, now)
        return events + self._begin_session(trigger, now)

    def _wait_or_abandon(self, trigger: Trigger, failed: Failed, now: float) -> list[Event]:
        """As long as our patience lasts, and somebody may still come, everyone is invited anew."""
        waited, patience_s = now - (self.waiting_since or 0.0), self._rules.timing.patience_s
        may_come = self._guests.admissible(self.rounds_done) - self._hellos.keys()
        if may_come and waited < patience_s and failed.reason not in HOPELESS:
            return self._open(trigger, now)
        return self._abandon(trigger, replace(failed, detail=f"{failed.detail}; waited for {waited:.0f} s"))

    def _catch_up(self) -> list[Event]:
        """The chain may be certified beyond what we knew: go on from there."""
        if self._chain is None:
            return []
        events = self._chain.catch_up(self._hellos, self._record, self.attempt)
        record = self._chain.record
        if record.position != self.rounds_done:
            self.rounds_done, self._holding, self.attempt, self._failures = record.position, frozenset(), 0, 0
            self._without.forget()
            self._rounds_told = max(self._rounds_told, self.rounds_done)
        if record.state is not None and self._scheme.server_holds_model:
            self.model = record.state.model
        self._model_hash = hash_held(self.model, self._chain)
        return events

    def _begin_session(self, trigger: Trigger, now: float) -> list[Event]:
        opened = self._terms.open(self._guests.here(self._hellos, self.rounds_done), self.rounds_done)
        self.session = self._scheme.introducing(self._chain.stating(opened) if self._chain else opened)
        self.waiting_since = None
        silent = (self._knocking & self._guests.admissible(self.rounds_done)) - self._hellos.keys()
        self._knocking -= self._guests.let_pass(silent, self.rounds_done)
        self._knocking |= self._hellos.keys()
        self._behind = self._chain.behind(self.session) if self._chain is not None else frozenset()
        self._expected = frozenset(self.session.members)
        self._knocking -= self._expected
        self._lost = set()
        stamp = Stamp(self.session.id, self.rounds_done, self.attempt)
        events = self._guests.begun(self.session, self._behind)
        events += [Send(name, opened) for name, opened in self.session.openings(stamp)]
        if (setup := self._scheme.server_setup(self._context(self.session))) is None:
            return events + self._begin_round(trigger, now)
        self._move(trigger, ServerPhase.PREPARING)
        self._machine = setup
        return events + self._settled(setup.start(now), now)

    def _context(self, session: Session) -> ServerContext:
        return ServerContext(
            me=self._parts.identity,
            rules=self._rules,
            random=self._parts.random,
            session=session,
            stamp=Stamp(session.id, self.rounds_done, self.attempt, self._model_hash),
            model=self.model,
            next_model=next_model_of(self._parts.apply, self.rounds_done),
            record=self._record,
            equipment=self._parts.equipment,
            chain=self._chain.point() if self._chain is not None else None,
            behind=self._behind,
        )

    def _begin_round(self, trigger: Trigger, now: float) -> list[Event]:
        assert self.session is not None
        self._move(trigger, ServerPhase.RUNNING)
        context = self._context(self.session)
        self._machine = require_machine(self._scheme, self._scheme.server_round(context))
        begun = AttemptBegan(context.stamp.round, context.stamp.attempt)
        return [begun, *self._settled(self._machine.start(now), now)]

    def _settled(self, events: list[Event], now: float) -> list[Event]:
        """Events so far, and what follows from the attempt's outcome if it has one."""
        machine = self._machine
        if machine is None or machine.outcome is None:
            return drop_stale_work(events, lambda: self._machine is machine, self._settled)
        self._machine = None
        match machine.outcome:
            case Committed() as outcome:
                return events + self._commit(outcome, now)
            case Failed() as failed:
                return events + self._retry(failed, now)
            case Prepared():
                return events + self._go_on_prepared(now)

    def _go_on_prepared(self, now: float) -> list[Event]:
        """After a set-up comes a round; after votes that peers passed on, the hellos that show them."""
        assert self.session is not None
        if (
            self._chain is not None
            and self.session.supported is not None
            and self.phase is ServerPhase.RUNNING
        ):
            self._chain.note_in_vain()
            self.attempt, self._failures = self.attempt + 1, self._failures + 1
            given_up = self._failures > self._rules.parameters.max_attempts
            return self._abandon("outcome", votes_not_shown()) if given_up else self._open("outcome", now)
        going_on = self.rounds_done < self._rules.rounds
        return self._begin_round("outcome", now) if going_on else self._finish("outcome")

    def _commit(self, outcome: Committed, now: float) -> list[Event]:
        assert self.session is not None
        stamp = Stamp(self.session.id, self.rounds_done, self.attempt)
        if self._scheme.server_holds_model and outcome.model is not None:
            self.model = self._rules.agreed_model(outcome.model)
        self._model_hash = outcome.model_hash
        self._behind, self._holding = frozenset(), frozenset(outcome.members) - frozenset(outcome.silent)
        certificate = None
        if self._chain is not None and outcome.chain is not None:
            certificate = self._chain.commit(outcome.chain)
        events: list[Event] = self._name(outcome.named)
        events += [outcome.event(stamp)] if self.rounds_done >= self._rounds_told else []
        self._rounds_told = max(self._rounds_told, self.rounds_done + 1)
        known_hash = outcome.model_hash if self._scheme.announces_next_hash else b""
        events += self._tell(RoundClosed(stamp, True, outcome.members, known_hash, certificate=certificate))
        self.rounds_done += 1
        self.attempt = self._failures = 0
        self._without.forget()
        if self.rounds_done >= self._rules.rounds and not (self._peers_hold_chain and self._knocking):
            return events + self._finish("outcome")
        passed_on = self.session.supported is not None
        gone = set() if passed_on else set(self.session.members) - set(outcome.members)
        gone |= set(outcome.silent) | self._lost | (self._guests.named.keys() & set(self.session.members))
        if passed_on or gone or self._knocking or self._rules.parameters.rekey is Rekey.ROUND:
            self._expected = (frozenset(self.session.members) - gone) | self._knocking
            return events + self._open("outcome", now)
        return events + self._begin_round("outcome", now)

    def _tell(self, closed: RoundClosed) -> list[Event]:
        """Where peers hold the model, they settle the outcome among themselves."""
        told = self.session.members if self.session is not None and self._scheme.server_holds_model else ()
        closed = self._terms.shortened(closed) if told else closed
        return [Send(name, closed) for name in told]

    def _name(self, named: Iterable[PartyNamed]) -> list[Event]:
        """Those who lied are left out from the next session on, for as long as this server lives."""
        found = {one.party: one for one in named if one.party not in self._guests.named}
        self._guests.named |= found
        self._knocking -= found.keys()
        return list(found.values())

    def _retry(self, failed: Failed, now: float) -> list[Event]:
        assert self.session is not None
        stamp = Stamp(self.session.id, self.rounds_done, self.attempt)
        self._without.learn(failed, self.session.members)
        self._parting.hear_failure(failed, self.rounds_done)
        if self._chain is not None and self.session.supported is not None:
            self._chain.note_in_vain()
        named = (*failed.named, *self._without.named)
        events: list[Event] = [*self._name(named), failed.event(stamp)]
        events += self._tell(RoundClosed(stamp, False, (), b"", failed.reason.value))
        self.attempt += 1
        self._failures += 1
        if not failed.repeatable or self._failures >= self._rules.parameters.max_attempts:
            complete = self.rounds_done >= self._rules.rounds
            return events + (self._finish("outcome") if complete else self._abandon("outcome", failed))
        present = frozenset(self.session.members) - frozenset(failed.missing) - self._lost
        wanted = present | self._knocking | (self._record.cohort_of(self.rounds_done) or frozenset())
        enough = len(wanted) >= self._rules.parameters.min_parties
        self._expected = wanted if enough else frozenset(self.session.members)
        return events + self._open("outcome", now)

    def _abandon(self, trigger: Trigger, failed: Failed) -> list[Event]:
        self._failed = failed = self._parting.explained(failed, self.rounds_done)
        return [*self._finish(trigger), RunFailed(failed.reason, failed.culprit, failed.detail)]

    def _finish(self, trigger: Trigger) -> list[Event]:
        self._move(trigger, ServerPhase.FINISHING)
        self._machine = None
        short, whole = self._farewell(lacks_it=False), self._farewell(lacks_it=True)
        everyone, holding = self._rules.roster.participants, self._holding - self._knocking
        events: list[Event] = [Send(name, short if name in holding else whole) for name in everyone]
        if self._failed is None:
            events.append(RunFinished(self.rounds_done, self.model))
        return events

    def _farewell(self, *, lacks_it: bool) -> Farewell:
        stamp = Stamp(self.session.id if self.session is not None else b"", self.rounds_done)
        return self._parting.farewell(stamp, self._failed, self.model, lacks_it=lacks_it)

    def _move(self, trigger: Trigger, target: Phase) -> None:
        self.table.require_move(self.phase, trigger, target)
        self.phase = target
