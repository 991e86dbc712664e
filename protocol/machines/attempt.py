"""One attempt of one round, and one set-up of a session: the machines that schemes are made of.

A scheme writes an `AttemptMachine` for the server and one for the participant. The machines know their phase,
a deadline and, when they are done, an outcome; sessions, attempts, retries and models are the business of server.py and
participant.py beside this file. Handlers check everything first, so that a refused message changes nothing:

    class MyServer(AttemptMachine):
        table = TransitionTable(...)

        @handles(MaskedInput)
        def collect(self, sender, message, now): ...

Machines derive from `AttemptMachine` and from nothing else. What two of them share is a part that is handed over: its
methods say what follows, as a `NextPhase` or as a `Failed`, and the machine goes there (`follow`). A part keeps neither
its machine nor a method of it, so that vectors and keys of an attempt are gone when it ends.

Implements specs/schemes.md, section 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import Parameters, Timing
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.record import ChainPoint, ChainRecord
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.kdf import Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId, shown_attempt
from veilsum.protocol.machines.events import (
    Event,
    PartyNamed,
    RoundCommitted,
    RoundFailed,
    Send,
    TrainingRequested,
    WorkRequested,
)
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.rules import ApplyMean, MachineRules
from veilsum.protocol.machines.session import RoundClosed, RoundOpened, Session
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.wire.messages import Message, Stamp

H = TypeVar("H", bound=Callable[..., list[Event]])

NextModel: TypeAlias = Callable[[Model, NDArray[np.float64] | None], Model]
"""The model after this round, from the model before it and the mean of its payloads; pure, and heavy."""

Dispute: TypeAlias = tuple[PartyId, PartyId]
"""Who says it, and of whom."""

WhenTrained: TypeAlias = Callable[[LocalResult, float], list[Event]]


@dataclass(frozen=True)
class Committed:
    """The attempt gave a result: who is in it, the next model where this role holds it, and its hash.

    `silent` are members of whom it is not known that they hold the result too; `loss` is that of the training,
    where the scheme itself finds it out; `named` are those who lied on the way; `chain` is what the party then keeps of
    the chain, where there is one.
    """

    members: tuple[PartyId, ...]
    model: Model | None = field(default=None, repr=False)
    model_hash: bytes = b""
    total: RingVector | None = field(default=None, repr=False)
    silent: tuple[PartyId, ...] = ()
    loss: float | None = None
    named: tuple[PartyNamed, ...] = ()
    chain: ChainRecord | None = field(default=None, repr=False)

    def event(self, stamp: Stamp) -> RoundCommitted:
        """What everybody is told of it."""
        known = (self.members, self.model_hash, self.model, self.total, self.loss, self.chain)
        return RoundCommitted(stamp.round, stamp.attempt, *known)


@dataclass(frozen=True)
class Failed:
    """The attempt gave none: `repeatable` if another may, without those `missing` unless a sum may be open by now.

    `left_out` are those with whom another attempt would fail in the same way, `named` those who lied; of each pair in
    `disputed` the first says that the second did not do its part: one of the two lies, or the network lost it. The
    network does not falsify: of each pair in `falsified` one lies.
    """

    reason: AbortReason
    culprit: str = ""
    detail: str = ""
    missing: tuple[PartyId, ...] = ()
    repeatable: bool = True
    left_out: tuple[PartyId, ...] = ()
    named: tuple[PartyNamed, ...] = ()
    disputed: frozenset[Dispute] = frozenset()
    falsified: Mapping[Dispute, AbortReason] = field(default_factory=dict)

    def event(self, stamp: Stamp) -> RoundFailed:
        """What everybody is told of it."""
        return RoundFailed(stamp.round, stamp.attempt, self.reason, self.culprit, self.detail)


@dataclass(frozen=True)
class Prepared:
    """A session's set-up is done; `secrets` is whatever the scheme's rounds need from it.

    `chain` is what the party then keeps of the chain, where the set-up brought it up to date.
    """

    secrets: Any = field(default=None, repr=False)
    chain: ChainRecord | None = field(default=None, repr=False)


Outcome: TypeAlias = Committed | Failed | Prepared


@dataclass(frozen=True)
class NextPhase:
    """A part of a machine found its work done: the phase that comes next, until when, and what to do on the way."""

    phase: Phase
    events: list[Event] = field(default_factory=list, repr=False)
    deadline: float | None = None


class SumRules:
    """What a participant insists on before its update enters a sum; nothing, where there is no chain."""

    def require_cohort(self, cohort: Collection[PartyId]) -> None:
        """Refuse to upload among these."""

    def require_list(self, survivors: Collection[PartyId]) -> None:
        """Refuse to sign this survivor list."""


@dataclass(frozen=True, kw_only=True)
class AttemptContext:
    """What both sides of an attempt stand on; `equipment` is known to the scheme alone."""

    me: Identity
    rules: MachineRules
    random: RandomBytes = field(repr=False)
    session: Session
    stamp: Stamp
    model: Model | None = field(repr=False)
    next_model: NextModel = field(repr=False)
    record: ParticipationRecord = field(repr=False)
    equipment: object | None = field(default=None, repr=False)
    chain: ChainPoint | None = field(default=None, repr=False)

    @property
    def point(self) -> ChainPoint:
        """Where the chain stands, for a scheme that has one."""
        assert self.chain is not None
        return self.chain

    @property
    def parameters(self) -> Parameters:
        return self.rules.parameters

    @property
    def timing(self) -> Timing:
        return self.rules.timing

    @property
    def roster(self) -> Roster:
        return self.rules.roster


@dataclass(frozen=True, kw_only=True)
class ServerContext(AttemptContext):
    """Everything the server's side of an attempt stands on; `behind` are members that lack the state of a chain."""

    behind: frozenset[PartyId] = frozenset()

    def open_round(self) -> list[Event]:
        """Tell every member that the attempt begins, with the model where the server holds it and they do not."""
        members = self.session.members
        nothing = RoundOpened(self.stamp, np.zeros(0, dtype="<f4"))
        if self.model is None:
            return [Send(name, nothing) for name in members]
        if self.chain is None:
            opened = RoundOpened(self.stamp, self.model)
            return [Send(name, opened) for name in members]
        state = self.chain.state
        whole = RoundOpened(
            self.stamp, state.model, np.frombuffer(state.memory, dtype=np.uint8), state.before
        )
        return [Send(name, whole if name in self.behind else nothing) for name in members]


@dataclass(frozen=True, kw_only=True)
class ParticipantContext(AttemptContext):
    """Everything a participant's side of an attempt stands on."""

    box_key: AgreementKey = field(repr=False)
    secrets: Any = field(repr=False)
    train: Callable[[WhenTrained, float], list[Event]] = field(repr=False)
    withdraw: Callable[[ProtocolError, float], list[Event]] = field(repr=False)
    sums: SumRules = field(repr=False)

    @property
    def name(self) -> PartyId:
        """Who this participant is."""
        return self.me.name

    @property
    def stated_members(self) -> tuple[PartyId, ...]:
        """Who is said to be in the attempt with us; nobody where neighbours alone are known and nothing is stated."""
        return () if self.parameters.lists_neighbourhoods else self.session.members

    def box_secret(
        self, purpose: Purpose, stamp: Stamp, sender: PartyId, receiver: PartyId, term: str = ""
    ) -> Secret:
        """The key of what one of the two, ourselves or another member, seals for the other."""
        other = receiver if sender == self.name else sender
        agreed = self.box_key.agree(self.session.box_key_of(other))
        return derive_key(agreed, purpose, stamp.key_context(sender, receiver, term))


def next_model_of(apply: ApplyMean, round_number: int) -> NextModel:
    """The step of one round."""
    return lambda before, mean: apply(before, mean, round_number)


def handles(*message_classes: type[Message]) -> Callable[[H], H]:
    """Mark a method as the handler of these message classes."""

    def mark(handler: H) -> H:
        handler._handles = message_classes  # type: ignore[attr-defined]  # read back by __init_subclass__
        return handler

    return mark


class AttemptMachine(ABC):
    """One attempt at the server or at a participant: its phase, its deadline, and at the end its outcome."""

    table: ClassVar[TransitionTable]
    _handlers: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        marked = {
            message_class: name
            for name, attribute in vars(cls).items()
            if callable(attribute) and hasattr(attribute, "_handles")
            for message_class in attribute._handles
        }
        cls._handlers = {**cls._handlers, **marked}

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.phase: Phase = self.table.initial
        self.deadline: float | None = None
        self.outcome: Outcome | None = None

    @property
    def is_decisive(self) -> bool:
        """Whether the result is at hand, so that the attempt must come to its own end before anything else."""
        return False

    @abstractmethod
    def start(self, now: float) -> list[Event]:
        """Begin; returns what to do."""

    @abstractmethod
    def deadline_passed(self, now: float) -> list[Event]:
        """What follows when the wait is over."""

    def lose(self, party: PartyId, now: float) -> list[Event]:
        """The party has left this attempt of its own accord; by default that is noticed at the deadline."""
        return []

    def hear_withdrawal(self, party: PartyId, reason: str, now: float) -> list[Event]:
        """The party leaves and says why, in words that may be a lie; `lose` is what matters."""
        return self.lose(party, now)

    def receive(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        """Events, or `RemoteProtocolError` with the sender's name and nothing changed."""
        self.table.require_expected(self.phase, message, sender)
        handler = getattr(self, self._handlers[type(message)])
        try:
            events: list[Event] = handler(sender, message, now)
        except Rejection as rejection:
            raise rejection.blamed_on(sender) from rejection
        return events

    def move(self, trigger: Trigger, target: Phase, deadline: float | None = None) -> None:
        """Go to another phase, as the table allows."""
        self.table.require_move(self.phase, trigger, target)
        self.phase = target
        self.deadline = deadline

    def follow(self, trigger: Trigger, found: NextPhase | Failed | None, closed: Phase) -> list[Event]:
        """Go where a part found it due, end where it found that impossible, and stay where nothing follows."""
        if found is None:
            return []
        if isinstance(found, Failed):
            return self.fail(trigger, closed, found)
        self.move(trigger, found.phase, found.deadline)
        return found.events

    def fail(
        self, trigger: Trigger, target: Phase, failed: Failed | ProtocolError, *, repeatable: bool = True
    ) -> list[Event]:
        """End the attempt without a result."""
        self.move(trigger, target)
        self.outcome = failed if isinstance(failed, Failed) else failure_of(failed, repeatable=repeatable)
        return []


def failure_of(error: ProtocolError, *, repeatable: bool = True) -> Failed:
    """The end of an attempt that this error brought about."""
    reason = getattr(error, "reason", AbortReason.WITHDRAWN)
    detail = getattr(error, "detail", "") or str(error)
    return Failed(reason, getattr(error, "culprit", ""), detail, repeatable=repeatable)


def server_was_silent(phase: Phase) -> Failed:
    """The end of an attempt whose server said nothing."""
    return Failed(AbortReason.TIMED_OUT, SERVER, f"while {phase.value}")


def require_from_server(sender: str) -> None:
    """Refuse what only the server may say."""
    if sender != SERVER:
        raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "only the server may say this")


def reason_from_text(text: str) -> AbortReason:
    """The reason that another party states; one we do not know is its withdrawal."""
    try:
        return AbortReason(text)
    except ValueError:
        return AbortReason.WITHDRAWN


def outcome_of(closed: RoundClosed, me: PartyId) -> Committed | Failed:
    """What the server's closing word means to a participant."""
    if not closed.committed:
        told = "the server closed the round without a result"
        return Failed(reason_from_text(closed.reason), detail=told)
    if me not in closed.members:
        return Failed(AbortReason.TIMED_OUT, me, "the round was closed without this party")
    return Committed(closed.members, model_hash=closed.next_model_hash)


def require_absent(sender: str, collected: Any) -> None:
    """Refuse a second part of the same party."""
    if sender in collected:
        raise Rejection(AbortReason.REPLAY, "this party has sent its part already")


def require_same_attempt(sender: str, found: Stamp, expected: Stamp) -> None:
    """Refuse what belongs to another session, round or attempt."""
    if found.session != expected.session:
        raise RemoteProtocolError(sender, AbortReason.WRONG_SESSION)
    if (found.round, found.attempt) != (expected.round, expected.attempt):
        raise RemoteProtocolError(
            sender,
            AbortReason.WRONG_ROUND,
            f"{shown_attempt(found.round, found.attempt)}, now is {shown_attempt(expected.round, expected.attempt)}",
        )


def drop_stale_work(
    events: list[Event],
    still_current: Callable[[], bool],
    settle: Callable[[list[Event], float], list[Event]],
) -> list[Event]:
    """Requests for work whose result is dropped if the attempt is over by then, and settled otherwise.

    Training by the learner is left as it is: its result outlives the attempt (protocol/machines/local_training.py).
    """

    def unless_stale(
        continuation: Callable[[Any, float], list[Event]],
    ) -> Callable[[Any, float], list[Event]]:
        return lambda result, now: settle(continuation(result, now), now) if still_current() else []

    return [
        replace(event, then=unless_stale(event.then), failed=unless_stale(event.failed))
        if isinstance(event, WorkRequested)
        or (isinstance(event, TrainingRequested) and event.work is not None)
        else event
        for event in events
    ]
