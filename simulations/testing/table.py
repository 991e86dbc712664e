"""A table of n machines and a server with a fake wire, under the full control of a test.

    table = Table.build("masked", parties=4)
    table.start()
    table.deliver(table.wire[0])
    table.crash("p1")
    table.run()

What a machine asks for is performed in the order of roles/process/pump.py, as in a process and in a simulation.
Nothing happens by itself. Messages wait on `table.wire` until the test delivers, drops, duplicates or holds
them, in any order. Time stands still until `advance` moves it to the next deadline of a machine. Work and
training run at once, or wait as `table.jobs` with `inline=False`. A party that crashes loses everything but
what its driver had to keep: the rounds it committed with their models, and the decisions of `DecisionMade`.

Implements specs/testing.md, section 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from veilsum.protocol.agreed.parameters import Timing
from veilsum.protocol.crypto.aead import watch_seals
from veilsum.protocol.crypto.linear_tag import watch_tags
from veilsum.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import TrainingRequested, WorkRequested
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.phases import ParticipantPhase, ServerPhase
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.wire.envelope import Body
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.config.spelling import require_known
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.process.observer import RunObserver
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.roles.process.pump import Action, Keep, Pump, Refused, Step, Tell, Transmit
from veilsum.simulations.testing.federation import SETTINGS, TableFederation, found_federation
from veilsum.simulations.testing.perturbation import TableLearner
from veilsum.simulations.testing.trace import Entry, InFlight, Refusal, Trace

FINISHING = (ServerPhase.FINISHING, ParticipantPhase.FINISHING)
STEP_LIMIT = 100_000


class Stuck(AssertionError):
    """The run does not end: no message, no job and no deadline is left, or too many steps were taken."""


@dataclass(frozen=True)
class TableJob:
    """Work or training that a machine asked for; its result is lost if the party crashes first."""

    number: int
    party: PartyId
    stamp: Stamp
    request: WorkRequested | TrainingRequested


class Tamper(Protocol):
    """Sees every message when it is sent, and says what travels in its place; None: nothing does."""

    def __call__(self, flight: InFlight, /) -> Message | None: ...


def honest(flight: InFlight) -> Message:
    """What was sent is what travels."""
    return flight.message


class Table:
    """All machines of one federation around a table, and a wire between them that a test commands."""

    def __repr__(self) -> str:
        scheme, count = self.federation.scheme.name, len(self.federation.participants)
        return f"Table(scheme={scheme!r}, {count} participants, now={self.now:g}, {len(self.wire)} in flight)"

    def __init__(
        self,
        federation: TableFederation,
        *,
        inline: bool = True,
        tamper: Tamper = honest,
        observer: RunObserver | None = None,
    ) -> None:
        self.federation = federation
        self.inline = inline
        self.tamper = tamper
        self.observer = observer if observer is not None else RunObserver()
        self.now = 0.0
        self.wire: list[InFlight] = []
        self.held: list[InFlight] = []
        self.jobs: list[TableJob] = []
        self.trace = Trace()
        self.crashed: set[PartyId] = set()
        self.liars: set[PartyId] = set()
        self.inputs: dict[tuple[PartyId, int], LocalResult] = {}
        self._numbers = 0
        self._crash_points: dict[PartyId, type[Message]] = {}
        names = (SERVER, *federation.participants)
        self.disks = {name: PersistentState(0, federation.initial_model) for name in names}
        self._random = {name: federation.entropy.for_party(name) for name in names}
        self._pumps: dict[PartyId, Pump] = {}
        self._watches = False
        self.machines: dict[PartyId, ServerMachine | ParticipantMachine] = {}
        for name in names:
            self._boot(name)

    @classmethod
    def build(
        cls,
        scheme: str,
        parties: int | Sequence[str] = 4,
        *,
        dimension: int | None = None,
        rounds: int = 2,
        seed: int = 0,
        bits: int = 64,
        timing: Timing | None = None,
        learner: TableLearner | None = None,
        inline: bool = True,
        tamper: Tamper = honest,
        observer: RunObserver | None = None,
        **parameters: Any,
    ) -> Table:
        """A table for a registered scheme; `parameters` are fields of `Parameters`, a graph may be its text."""
        require_known("Table.build", parameters, (*SETTINGS, *inspect.signature(cls.build).parameters))
        federation = found_federation(
            scheme,
            parties,
            dimension=dimension,
            rounds=rounds,
            seed=seed,
            bits=bits,
            timing=timing,
            learner=learner,
            **parameters,
        )
        return cls(federation, inline=inline, tamper=tamper, observer=observer)

    @property
    def server(self) -> ServerMachine:
        """The machine of the server."""
        machine = self.machines[SERVER]
        assert isinstance(machine, ServerMachine)
        return machine

    @property
    def participants(self) -> tuple[PartyId, ...]:
        """All parties but the server."""
        return self.federation.participants

    @property
    def present(self) -> tuple[PartyId, ...]:
        """All parties, the server included, that have not crashed."""
        return tuple(name for name in self.machines if name not in self.crashed)

    @property
    def finished(self) -> bool:
        """Whether every party that is present has ended its run."""
        return all(self.machines[name].phase in FINISHING for name in self.present)

    def start(self) -> None:
        """Let everybody begin."""
        for name in self.present:
            self._start(name)

    def deliver(self, flight: InFlight) -> RemoteProtocolError | None:
        """Hand a message to its receiver; returns the refusal if it is refused."""
        self._pick_up(flight)
        if flight.receiver in self.crashed or flight.receiver not in self.machines:
            return None
        before = len(self.trace.refusals)
        pump = self._pumps[flight.receiver]
        size = len(Body.of(flight.message))
        self.observer.received(self.now, flight.receiver, flight.sender, flight.message, size)
        self._perform(flight.receiver, pump.receive(flight.sender, flight.message, self.now), flight)
        refusals = self.trace.refusals[before:]
        return refusals[0].error if refusals else None

    def deliver_all(self) -> None:
        """Deliver, oldest first, until nothing is on the wire and no job is left."""
        while self.wire or self.jobs:
            if self.wire:
                self.deliver(self.wire[0])
            else:
                self.run_job(self.jobs[0])

    def drop(self, flight: InFlight) -> None:
        """Lose a message."""
        self._pick_up(flight)

    def duplicate(self, flight: InFlight) -> InFlight:
        """Put a second copy on the wire, behind everything else."""
        return self._post(flight.sender, flight.receiver, flight.message)

    def hold(self, flight: InFlight) -> None:
        """Take a message off the wire until it is released."""
        self._pick_up(flight)
        self.held.append(flight)

    def release(self, flight: InFlight) -> None:
        """Let a message go on that was held."""
        self.held.remove(flight)
        self.wire.append(flight)

    def inject(self, sender: str, receiver: str, message: Message) -> InFlight:
        """Put a message on the wire that no machine sent: from now on its sender counts as a liar."""
        self.liars.add(PartyId(sender))
        return self._post(PartyId(sender), PartyId(receiver), message)

    def crash(self, name: str) -> None:
        """The party is gone: jobs and memory are lost, messages to it vanish until it restarts."""
        self.crashed.add(self._require_party(name))
        self.jobs = [job for job in self.jobs if job.party != name]

    def crash_before(self, name: str, message_class: type[Message]) -> None:
        """Let the party crash at the moment it would send such a message."""
        self._crash_points[self._require_party(name)] = message_class

    def restart(self, name: str) -> None:
        """Start a crashed party anew from what it had on disk."""
        party = self._require_party(name)
        if party not in self.crashed:
            raise LocalProtocolError(f"{name} has not crashed")
        self.crashed.remove(party)
        self._boot(party)
        self._start(party)

    def next_deadline(self) -> float | None:
        """When time next makes a machine do something."""
        due = [self.machines[name].next_deadline() for name in self.present]
        return min((time for time in due if time is not None), default=None)

    def advance(self) -> bool:
        """Move time to the next deadline and let every machine that is due handle it; false if there is none."""
        due = self.next_deadline()
        if due is None:
            return False
        self.now = max(self.now, due)
        for name in self.present:
            if name not in self.crashed:
                self._take(name, self.machines[name].handle_deadline)
        return True

    def run_job(self, job: TableJob) -> None:
        """Do the work or the training, and hand the machine its result."""
        if job in self.jobs:
            self.jobs.remove(job)
        request = job.request
        try:
            result = self._work(job)
        except ProtocolError as error:
            self._take(job.party, partial(request.failed, error))
            return
        if isinstance(request, TrainingRequested):
            self._tell_trained(job.party, request.round, result)
        self._take(job.party, partial(request.then, result))

    def fail_job(self, job: TableJob, error: ProtocolError) -> None:
        """Let work that a machine asked for fail with this error."""
        self.jobs.remove(job)
        self._take(job.party, partial(job.request.failed, error))

    def run(self) -> Table:
        """Deliver everything in order and let time pass, until every party that is present has ended its run.

        Returns the table.
        """
        for _ in range(STEP_LIMIT):
            self.deliver_all()
            if self.finished:
                return self
            if not self.advance():
                break
        waiting = [f"{name} is {self.machines[name].phase.value}" for name in self.present]
        raise Stuck(f"at {self.now:g} s nothing ends any more: {', '.join(waiting)}")

    def stamp_of(self, name: PartyId) -> Stamp:
        """What the party is working on; an empty stamp if on nothing."""
        machine = self.machines[name].machine
        return Stamp() if machine is None else machine.stamp

    def _work(self, job: TableJob) -> Any:
        with self.trace.noting_keys(job.party, job.stamp, job.number), self._watching():
            match job.request:
                case WorkRequested() as work:
                    return work.job()
                case TrainingRequested() as training:
                    return self._train(job.party, training)

    def _train(self, party: PartyId, request: TrainingRequested) -> LocalResult:
        if request.work is not None:
            result = request.work()
        else:
            result = self.federation.learner.train(party, request.round, request.model)
        self.inputs[party, request.round] = self.federation.parameters.weights.weigh(result)
        return result

    def _tell_trained(self, party: PartyId, round_number: int, result: LocalResult) -> None:
        """Tell of an update; what is none, as a test may hand one over, is the machine's to refuse."""
        try:
            update = LocalUpdate(result.payload, result.samples, result.loss)
        except LocalProtocolError:
            return
        self.observer.trained(self.now, party, round_number, update)

    def _start(self, name: PartyId) -> None:
        self.observer.began(self.now, name, self.machines[name])
        self._take(name, self.machines[name].start)

    def _take(self, name: PartyId, step: Step) -> None:
        self._perform(name, self._pumps[name].take(step, self.now))

    def _perform(self, name: PartyId, actions: Iterable[Action], fed: InFlight | None = None) -> None:
        with self._watching():
            self._perform_each(name, actions, fed)

    def _perform_each(self, name: PartyId, actions: Iterable[Action], fed: InFlight | None) -> None:
        pump = self._pumps[name]
        for action in actions:
            if name in self.crashed or self._pumps[name] is not pump:
                return
            match action:
                case Keep():
                    self.disks[name] = action.state.copy()
                case Tell():
                    self.trace.entries.append(Entry(self.now, name, action.event, self._number()))
                    self.observer.noted(self.now, name, action.event)
                case Transmit():
                    for receiver in action.receivers:
                        self._send(name, receiver, action.message)
                case Refused():
                    assert fed is not None, "only a message is refused"
                    self.trace.refusals.append(Refusal(fed, action.error))
                case WorkRequested() | TrainingRequested():
                    job = TableJob(self._number(), name, self.stamp_of(name), action)
                    self.jobs.append(job)
                    if self.inline:
                        self.run_job(job)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Note what is sealed and tagged, once: work of a machine may be done while its answer is performed."""
        if self._watches:
            yield
            return
        self._watches = True
        try:
            with watch_seals(self.trace.seals), watch_tags(self.trace.tags):
                yield
        finally:
            self._watches = False

    def _send(self, name: PartyId, receiver: PartyId, message: Message) -> None:
        if name in self.crashed:
            return
        if type(message) is self._crash_points.get(name):
            del self._crash_points[name]
            self.crash(name)
            return
        flight = InFlight(self._number(), name, receiver, message)
        self.trace.sent.append(flight)
        self.observer.sent(self.now, name, receiver, message, len(Body.of(message)))
        with self.trace.tags.looking_away():
            travelling = self.tamper(flight)
        if travelling is not message:
            self.liars.add(name)
        if travelling is not None:
            self.wire.append(replace(flight, message=travelling))

    def _post(self, sender: PartyId, receiver: PartyId, message: Message) -> InFlight:
        flight = InFlight(self._number(), sender, receiver, message)
        self.wire.append(flight)
        return flight

    def _pick_up(self, flight: InFlight) -> None:
        if flight not in self.wire:
            raise LocalProtocolError(f"{flight!r} is not on the wire")
        self.wire.remove(flight)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _require_party(self, name: str) -> PartyId:
        if name not in self.machines:
            raise LocalProtocolError(f"{name} does not sit at this table: {', '.join(self.machines)}")
        return PartyId(name)

    def _boot(self, name: PartyId) -> None:
        state = self.disks[name].copy()
        self.machines[name] = self.federation.machine(name, state, self._random[name])
        self._pumps[name] = Pump(self.machines[name], state)
