"""A table of machines at which any message can be replaced, withheld or invented.

    table = LyingTable("masked", parties=5)
    flight = table.until(SurvivorList, "p0")      run until the server's list for p0 is on the wire
    error = table.say("server", "p0", lie)        p0 hears something else; the refusal, or None

`table.tamper` sees every message when it is sent, and returns what travels instead (None: nothing). When a
lie is refused, the receiver's whole state is compared with what it was before: a refusal changes nothing.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veilsum.protocol.agreed.parameters import Parameters, Timing
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason, ProtocolError, RemoteProtocolError
from veilsum.protocol.graphs.policy import parse_graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import AttemptMachine
from veilsum.protocol.machines.events import (
    Event,
    RoundCommitted,
    RoundFailed,
    RunFailed,
    RunFinished,
    Send,
    TrainingRequested,
    Warned,
    WorkRequested,
)
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.fixedpoint import plan
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.wire.messages import Message
from veilsum.roles.learning.contract import PAYLOADS, apply_update
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.run.keypool import simulation_rsa_key

MAX_WEIGHT = 1000
CLIP = 8.0
Tamper = Callable[["Flight"], "Message | None"]


@dataclass(frozen=True)
class Flight:
    sender: PartyId
    receiver: PartyId
    message: Message


@dataclass
class Told:
    """What one party said about itself."""

    commits: list[RoundCommitted] = field(default_factory=list)
    failures: list[RoundFailed] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ending: RunFinished | RunFailed | None = None


def party_names(count: int) -> list[PartyId]:
    return [PartyId(f"p{index}") for index in range(count)]


def make_identities(scheme: Scheme, names: Iterable[PartyId], seed: int) -> dict[PartyId, Identity]:
    entropy = SeededEntropy(seed)
    identities = {
        name: Identity(
            name,
            scheme.participant_role,
            SigningKey.generate(entropy.for_party(f"keys of {name}")),
            simulation_rsa_key(index) if scheme.needs_rsa else None,
        )
        for index, name in enumerate(names)
    }
    identities[SERVER] = Identity(SERVER, Role.SERVER, SigningKey.generate(entropy.for_party("keys")))
    return identities


def random_input(party: str, round_number: int, dimension: int) -> LocalResult:
    numbers = np.random.default_rng([round_number, *party.encode()])
    payload = numbers.uniform(-1, 1, dimension).astype(np.float32)
    return LocalResult(payload, int(numbers.integers(1, MAX_WEIGHT + 1)))


class LyingTable:
    def __init__(
        self,
        scheme: str,
        parties: int = 5,
        *,
        dimension: int = 6,
        rounds: int = 1,
        bits: int = 64,
        graph: str = "complete",
        absent: Iterable[str] = (),
        seed: int = 7,
        tamper: Tamper | None = None,
        **fields: Any,
    ) -> None:
        self.scheme = find_scheme(scheme)
        self.names = party_names(parties)
        self.identities = make_identities(self.scheme, self.names, seed)
        self.roster = Roster(1, tuple(identity.public for identity in self.identities.values()))
        fields.setdefault("min_parties", min(3, parties))
        encoding = plan(parties, MAX_WEIGHT, CLIP, bits).encoding
        self.parameters = Parameters(scheme, encoding, dimension, graph=parse_graph(graph), **fields)
        self.rounds = rounds
        self.entropy = SeededEntropy(seed + 1)
        self.initial_model = np.zeros(dimension, dtype=np.float32)
        self.tamper: Tamper = tamper or (lambda flight: flight.message)
        self.now = 0.0
        self.wire: deque[Flight] = deque()
        self.sent: list[Flight] = []
        self.refusals: list[tuple[Flight, RemoteProtocolError]] = []
        self.gone: set[PartyId] = set(map(PartyId, absent))
        self.told: dict[PartyId, Told] = {name: Told() for name in (SERVER, *self.names)}
        self.inputs: dict[tuple[PartyId, int], LocalResult] = {}
        self.machines: dict[PartyId, ServerMachine | ParticipantMachine] = {}
        for name in (SERVER, *self.names):
            self.machines[name] = self._new_machine(name)
        self._started = False

    def _new_machine(
        self, name: PartyId, rounds_done: int = 0, record: ParticipationRecord | None = None
    ) -> ServerMachine | ParticipantMachine:
        common: dict[str, Any] = {
            "identity": self.identities[name],
            "roster": self.roster,
            "parameters": self.parameters,
            "scheme": self.scheme,
            "timing": Timing(),
            "random": self.entropy.for_party(name),
            "apply": self._apply,
            "model": self.initial_model,
            "rounds_done": rounds_done,
        }
        if name == SERVER:
            return ServerMachine(**common, rounds=self.rounds)
        return ParticipantMachine(**common, record=record)

    def _apply(self, model: Any, mean: Any, round_number: int) -> Any:
        payload = next(word for word in PAYLOADS if word == self.parameters.payload)
        return apply_update(model, mean, payload, 0.1)

    def input_of(self, party: PartyId, round_number: int) -> LocalResult:
        key = (party, round_number)
        if key not in self.inputs:
            self.inputs[key] = random_input(party, round_number, self.parameters.dimension)
        return self.inputs[key]

    @property
    def server(self) -> ServerMachine:
        machine = self.machines[SERVER]
        assert isinstance(machine, ServerMachine)
        return machine

    def participant(self, name: str) -> ParticipantMachine:
        machine = self.machines[PartyId(name)]
        assert isinstance(machine, ParticipantMachine)
        return machine

    def attempt_of(self, name: str) -> AttemptMachine:
        machine = self.machines[PartyId(name)].machine
        assert machine is not None, f"{name} is in no attempt"
        return machine

    def start(self) -> None:
        self._started = True
        for name in self.machines:
            if name not in self.gone:
                self._perform(name, self.machines[name].start(self.now))

    def seat(self, name: str) -> None:
        """A party that was absent comes in."""
        self.gone.discard(PartyId(name))
        self._perform(PartyId(name), self.machines[PartyId(name)].start(self.now))

    def lose(self, *names: str) -> None:
        self.gone.update(map(PartyId, names))

    def run(self) -> LyingTable:
        """Until every party that is there has ended its run, or nothing happens any more."""
        while not self._over():
            if self.wire:
                self.step()
            elif not self._advance():
                break
        return self

    def until(self, kind: type[Message], receiver: str | None = None, sender: str | None = None) -> Flight:
        """Run until such a message is the next of its sender to its receiver; it stays on the wire."""
        if not self._started:
            self.start()
        while True:
            links = set()
            for flight in self.wire:
                wanted = receiver in (None, flight.receiver) and sender in (None, flight.sender)
                link = (flight.sender, flight.receiver)
                if wanted and isinstance(flight.message, kind) and link not in links:
                    return flight
                links.add(link)
            if self.wire:
                self.step()
            else:
                assert self._advance(), f"no {kind.__name__} was ever sent"

    def _over(self) -> bool:
        if not self._started:
            self.start()
        return not self.wire and all(
            self.machines[name].phase.value == "finishing" for name in self.machines if name not in self.gone
        )

    def settle(self) -> None:
        """Deliver everything that is on the wire, without letting time pass."""
        while self.wire:
            self.step()

    def step(self) -> None:
        flight = self.wire.popleft()
        if flight.receiver not in self.gone:
            self.deliver(flight)

    def drop(self, flight: Flight) -> None:
        self.wire.remove(flight)

    def hold(self, kind: type[Message], receiver: str, sender: str) -> Flight:
        """Take such a message off the wire and deliver everything else; `deliver` it when its time has come."""
        flight = self.until(kind, receiver, sender)
        self.drop(flight)
        self.settle()
        return flight

    def deliver(self, flight: Flight) -> RemoteProtocolError | None:
        try:
            events = self.machines[flight.receiver].receive(flight.sender, flight.message, self.now)
        except RemoteProtocolError as error:
            self.refusals.append((flight, error))
            return error
        self._perform(flight.receiver, events)
        return None

    def say(self, sender: str, receiver: str, message: Message) -> RemoteProtocolError | None:
        """Deliver a message that no machine sent; if it is refused, nothing may have changed."""
        before = snapshot(self.machines[PartyId(receiver)])
        error = self.deliver(Flight(PartyId(sender), PartyId(receiver), message))
        if error is not None:
            assert snapshot(self.machines[PartyId(receiver)]) == before, "a refused message changed something"
        return error

    def refuses(self, receiver: str, sender: str, message: Message, reason: AbortReason) -> str:
        """Assert that the message is refused for this reason and blamed on its sender; returns the detail."""
        error = self.say(sender, receiver, message)
        assert error is not None, "the lie was believed"
        assert (error.reason, error.culprit) == (reason, sender), error
        return error.detail

    def _advance(self) -> bool:
        present = [machine for name, machine in self.machines.items() if name not in self.gone]
        due = [time for machine in present if (time := machine.next_deadline()) is not None]
        if not due:
            return False
        self.now = max(self.now, min(due))
        for name in list(self.machines):
            if name not in self.gone:
                self._perform(name, self.machines[name].handle_deadline(self.now))
        return True

    def _perform(self, name: PartyId, events: Iterable[Event]) -> None:
        for event in events:
            if name in self.gone:
                return
            match event:
                case Send():
                    self._send(Flight(name, event.receiver, event.message))
                case WorkRequested():
                    self._work(name, event)
                case TrainingRequested():
                    self._perform(name, event.then(self.input_of(name, event.round), self.now))
                case RoundCommitted():
                    self.told[name].commits.append(event)
                case RoundFailed():
                    self.told[name].failures.append(event)
                case Warned():
                    self.told[name].warnings.append(event.text)
                case RunFinished() | RunFailed():
                    self.told[name].ending = event
                case _:
                    pass

    def _work(self, name: PartyId, request: WorkRequested) -> None:
        try:
            result = request.job()
        except ProtocolError as error:
            self._perform(name, request.failed(error, self.now))
        else:
            self._perform(name, request.then(result, self.now))

    def _send(self, flight: Flight) -> None:
        self.sent.append(flight)
        message = self.tamper(flight)
        if message is not None and flight.sender not in self.gone:
            self.wire.append(Flight(flight.sender, flight.receiver, message))

    def messages(self, kind: type[Any], sender: str | None = None, receiver: str | None = None) -> list[Any]:
        """What the machines themselves sent."""
        return [
            flight.message
            for flight in self.sent
            if isinstance(flight.message, kind)
            and sender in (None, flight.sender)
            and receiver in (None, flight.receiver)
        ]

    def reasons(self, *names: str) -> set[AbortReason]:
        """Why attempts failed at these parties (all participants if none is named)."""
        return {
            failure.reason for name in names or self.names for failure in self.told[PartyId(name)].failures
        }

    def nobody_has_a_result(self, *names: str) -> bool:
        return not any(self.told[PartyId(name)].commits for name in names or self.names)

    def exact_model(self, members: Iterable[PartyId], round_number: int = 0) -> bytes:
        """The model after one round from zeros, by integer arithmetic on the inputs alone."""
        encoding, cohort = self.parameters.encoding, [self.input_of(name, round_number) for name in members]
        factors = [one.samples / MAX_WEIGHT * encoding.scale for one in cohort]
        weight = sum(round(factor) for factor in factors)
        sums = [
            sum(round(float(one.payload[at]) * factor) for one, factor in zip(cohort, factors, strict=True))
            for at in range(self.parameters.dimension)
        ]
        return np.array([float(total) / float(weight) for total in sums]).astype(np.float32).tobytes()


_WHOLE = (
    "Roster",
    "Identity",
    "Parameters",
    "Timing",
    "SeededEntropy",
    "AgreementKey",
    "Masked",
    "Mpc",
    "Ampc",
)


def snapshot(value: Any) -> Any:
    """Everything that a machine holds, as a value that can be compared."""
    return _frozen(value, set())


def _frozen(value: Any, above: set[int]) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, enum.Enum) or value is None or isinstance(value, (int, float, str, bytes)):
        return value
    if id(value) in above:
        return "above"
    inner = above | {id(value)}
    if isinstance(value, Mapping):
        return tuple((_frozen(key, inner), _frozen(one, inner)) for key, one in value.items())
    if isinstance(value, list | tuple | deque):
        return tuple(_frozen(one, inner) for one in value)
    if isinstance(value, set | frozenset):
        return frozenset(_frozen(one, inner) for one in value)
    if isinstance(value, Message) or callable(value) or type(value).__name__ in _WHOLE:
        return id(value)
    return type(value).__name__, _frozen(getattr(value, "__dict__", {}), inner)
