"""A table of n machines and a server with a fake wire, under the full control of a test.

    table = Table.build("masked", parties=4)
    table.start()
    table.deliver(table.wire[0])
    table.crash("p1")
    table.run()

Nothing happens by itself. Messages wait on `table.wire` until the test delivers, drops, duplicates or holds
them, in any order. Time stands still until `advance` moves it to the next deadline of a machine. Work and
training run at once, or wait as `table.jobs` with `inline=False`. A party that crashes loses everything but
what its driver had to keep: the rounds it committed with their models, and the decisions of `DecisionMade`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from veilsum.protocol.agreed.parameters import Timing
from veilsum.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import (
    DecisionMade,
    Event,
    ModelTaken,
    PhaseEntered,
    RoundCommitted,
    Send,
    TrainingRequested,
    WorkRequested,
)
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.phases import ParticipantPhase, ServerPhase
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing.federation import Federation, found_federation
from veilsum.simulations.testing.perturbation import TableLearner
from veilsum.simulations.testing.trace import Entry, InFlight, Journal, Refusal

FINISHING = (ServerPhase.FINISHING, ParticipantPhase.FINISHING)
STEP_LIMIT = 100_000


class Stuck(AssertionError):
    """The run does not end: no message, no job and no deadline is left, or too many steps were taken."""


@dataclass
class PersistentState:
    """What a party's driver has on disk."""

    rounds_done: int = 0
    model: Model | None = None
    record: ParticipationRecord = field(default_factory=ParticipationRecord)
    next_attempt: int = 0

    def keep(self, event: Event) -> None:
        match event:
            case PhaseEntered():
                self.next_attempt = event.attempt + 1
            case DecisionMade(decision):
                self.record.note(decision)
            case RoundCommitted():
                self.rounds_done = event.round + 1
                self.model = event.model if event.model is not None else self.model
                self.record.remember(frozenset(event.members))
                self.next_attempt = 0
            case ModelTaken():
                self.rounds_done, self.model = event.rounds_done, event.model


@dataclass(frozen=True)
class Job:
    """Work or training that a machine asked for; its result is lost if the party crashes first."""

    number: int
    party: PartyId
    stamp: Stamp
    request: WorkRequested | TrainingRequested
    machine: ServerMachine | ParticipantMachine = field(repr=False)


class Table:
    def __init__(self, federation: Federation, *, inline: bool = True) -> None:
        self.federation = federation
        self.inline = inline
        self.now = 0.0
        self.wire: list[InFlight] = []
        self.held: list[InFlight] = []
        self.jobs: list[Job] = []
        self.journal = Journal()
        self.crashed: set[PartyId] = set()
        self.liars: set[PartyId] = set()
        self.inputs: dict[tuple[PartyId, int], LocalResult] = {}
        self._numbers = 0
        self._crash_points: dict[PartyId, type[Message]] = {}
        names = (SERVER, *federation.participants)
        self._durable = {name: PersistentState() for name in names}
        self._random = {name: federation.entropy.for_party(name) for name in names}
        self.machines = {name: self._new_machine(name) for name in names}

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
        **parameters: Any,
    ) -> Table:
        """A table for a registered scheme; `parameters` are fields of `Parameters`, a graph may be its text."""
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
        return cls(federation, inline=inline)

    @property
    def server(self) -> ServerMachine:
        machine = self.machines[SERVER]
        assert isinstance(machine, ServerMachine)
        return machine

    @property
    def participants(self) -> tuple[PartyId, ...]:
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
        for name in self.machines:
            self._perform(name, self.machines[name].start(self.now))

    def deliver(self, flight: InFlight) -> RemoteProtocolError | None:
        """Hand a message to its receiver; returns the refusal if it is refused."""
        self._take(flight)
        if flight.receiver in self.crashed or flight.receiver not in self.machines:
            return None
        machine = self.machines[flight.receiver]
        try:
            events = machine.receive(flight.sender, flight.message, self.now)
        except RemoteProtocolError as error:
            self.journal.refusals.append(Refusal(flight, error))
            return error
        self._perform(flight.receiver, events)
        return None

    def deliver_all(self) -> None:
        """Deliver, oldest first, until nothing is on the wire and no job is left."""
        while self.wire or self.jobs:
            if self.wire:
                self.deliver(self.wire[0])
            else:
                self.run_job(self.jobs[0])

    def drop(self, flight: InFlight) -> None:
        self._take(flight)

    def duplicate(self, flight: InFlight) -> InFlight:
        """Put a second copy on the wire, behind everything else."""
        return self._post(flight.sender, flight.receiver, flight.message)

    def hold(self, flight: InFlight) -> None:
        """Take a message off the wire until it is released."""
        self._take(flight)
        self.held.append(flight)

    def release(self, flight: InFlight) -> None:
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
        self.machines[party] = self._new_machine(party)
        self._perform(party, self.machines[party].start(self.now))

    def next_deadline(self) -> float | None:
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
                self._perform(name, self.machines[name].handle_deadline(self.now))
        return True

    def run_job(self, job: Job) -> None:
        """Do the work or the training, and hand the machine its result."""
        if job in self.jobs:
            self.jobs.remove(job)
        request = job.request
        try:
            result = self._work(job)
        except ProtocolError as error:
            self._perform(job.party, request.failed(error, self.now))
            return
        self._perform(job.party, request.then(result, self.now))

    def fail_job(self, job: Job, error: ProtocolError) -> None:
        self.jobs.remove(job)
        self._perform(job.party, job.request.failed(error, self.now))

    def run(self) -> None:
        """Deliver everything in order and let time pass, until every party that is present has ended its run."""
        for _ in range(STEP_LIMIT):
            self.deliver_all()
            if self.finished:
                return
            if not self.advance():
                break
        waiting = [f"{name} is {self.machines[name].phase.value}" for name in self.present]
        raise Stuck(f"at {self.now:g} s nothing ends any more: {', '.join(waiting)}")

    def stamp_of(self, name: PartyId) -> Stamp:
        """What the party is working on; an empty stamp if on nothing."""
        machine = self.machines[name].machine
        return Stamp() if machine is None else machine.stamp

    def _work(self, job: Job) -> Any:
        with self.journal.noting_keys(job.party, job.stamp, job.number):
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
        self.inputs[party, request.round] = result
        return result

    def _perform(self, name: PartyId, events: list[Event]) -> None:
        machine = self.machines[name]
        for event in events:
            if name in self.crashed or self.machines[name] is not machine:
                return
            match event:
                case Send():
                    self._send(name, event)
                case WorkRequested() | TrainingRequested():
                    job = Job(self._number(), name, self.stamp_of(name), event, machine)
                    self.jobs.append(job)
                    if self.inline:
                        self.run_job(job)
                case _:
                    self.journal.entries.append(Entry(self.now, name, event))
                    self._durable[name].keep(event)

    def _send(self, name: PartyId, event: Send) -> None:
        if type(event.message) is self._crash_points.get(name):
            del self._crash_points[name]
            self.crash(name)
            return
        self.journal.sent.append(self._post(name, event.receiver, event.message))

    def _post(self, sender: PartyId, receiver: PartyId, message: Message) -> InFlight:
        flight = InFlight(self._number(), sender, receiver, message)
        self.wire.append(flight)
        return flight

    def _take(self, flight: InFlight) -> None:
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

    def _new_machine(self, name: PartyId) -> ServerMachine | ParticipantMachine:
        federation, durable = self.federation, copy.deepcopy(self._durable[name])
        common: dict[str, Any] = {
            "identity": federation.identities[name],
            "roster": federation.roster,
            "parameters": federation.parameters,
            "scheme": federation.scheme,
            "timing": federation.timing,
            "random": self._random[name],
            "apply": federation.apply,
            "rounds_done": durable.rounds_done,
            "record": durable.record,
            "equipment": federation.equipment_of(name),
            "model": durable.model if durable.model is not None else federation.initial_model,
        }
        if name == SERVER:
            return ServerMachine(**common, rounds=federation.rounds, first_attempt=durable.next_attempt)
        return ParticipantMachine(**common)
