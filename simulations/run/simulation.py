"""Machines on virtual time: feed, drain, send, re-arm. A simulated hour takes as long as its messages take.

Every message travels as a signed envelope, as it would between computers. What a machine asks for is performed in the
order of roles/process/pump.py. Training goes through an engine and takes no virtual time, nor does other heavy work,
which runs inline. A party that is to be lost at some phase crashes right before it sends the
message that ends the phase.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from veilsum.protocol.errors import LocalProtocolError, ProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import TrainingRequested, WorkRequested
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.wire.envelope import Body, Envelope, decode_envelope, encode_envelope, join
from veilsum.protocol.wire.limits import DEFAULT_LIMITS
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.protocol.wire.replay import Duplicate
from veilsum.roles.learning.contract import Learner, LocalUpdate
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.observer import RunObserver
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.roles.process.pump import Action, Ended, Keep, Pump, Refused, Tell, Transmit
from veilsum.simulations.run.engine import InlineEngine, Training, TrainingEngine
from veilsum.simulations.run.federation import Federation
from veilsum.transport.memory.faults import Faults
from veilsum.transport.memory.network import (
    Crashed,
    Delivery,
    NetworkEvent,
    Returned,
    TimerDue,
    simulated_network,
)

Outcome = TypeVar("Outcome")
InsteadOf: TypeAlias = Callable[[PartyId, PartyId, Message], list[Message]]


@dataclass(repr=False)
class Node:
    """One party: its machine, its envelope codec, what it has on disk, and what it cost."""

    name: PartyId
    pump: Pump
    codec: EnvelopeCodec
    disk: PersistentState
    learner: Learner | None
    lost_before: type[Message] | None = None
    alive: bool = True
    armed: float | None = None
    cpu_by_kind: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """CPU seconds by the kind of message (or `start`, `deadline`) they were spent on, training left out."""
    training_cpu_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0

    def __repr__(self) -> str:
        return f"Node({self.name!r}, alive={self.alive}, rounds_done={self.disk.rounds_done})"

    @property
    def machine(self) -> Machine:
        return self.pump.machine

    @property
    def ended(self) -> Ended | None:
        return self.pump.ended

    @property
    def cpu_s(self) -> float:
        return float(sum(self.cpu_by_kind.values()))


@dataclass(frozen=True)
class RefusedDelivery:
    """What a party did not accept: bytes that no one of the roster signed for it, or a message out of place."""

    time: float
    party: PartyId
    error: ProtocolError
    message: Message | None = None


class Network(Protocol):
    """Virtual time and whatever travels on it; transport.memory has two of them."""

    def send(self, now: float, sender: str, receiver: str, payload: object) -> None: ...
    def set_timer(self, at: float, party: str, token: object = None) -> None: ...
    def next_event_time(self) -> float | None: ...
    def pop_due(self, now: float) -> list[NetworkEvent]: ...


@dataclass(repr=False)
class Simulation:
    """A federation on virtual time, with the faults of its network."""

    federation: Federation
    faults: Faults = field(default_factory=Faults)
    lost: Mapping[PartyId, type[Message]] = field(default_factory=dict)
    """Who crashes for good, and before which of its messages."""
    observer: RunObserver = field(default_factory=RunObserver)
    network: Network | None = None
    """How messages travel; by default the virtual network with these faults."""
    engine: TrainingEngine = field(default_factory=InlineEngine)
    """Where the parties train."""
    instead_of: InsteadOf | None = None
    """Says what travels in place of what a machine sends."""
    time_limit_s: float = 10 * 24 * 3600.0

    def __repr__(self) -> str:
        return f"Simulation({self.federation!r}, now={self.now:g}, {len(self.refusals)} refusals)"

    def __post_init__(self) -> None:
        self.now = 0.0
        self._network = self.network or simulated_network(self.faults, self.federation.config.seed)
        self._aside_s = 0.0
        self._byte_faults = self.faults.lose_datagrams or self.faults.corrupt > 0
        self._training: deque[tuple[Node, TrainingRequested, Future[LocalUpdate]]] = deque()
        self.refusals: list[RefusedDelivery] = []
        self.nodes = {name: self._node(name, self.federation.fresh()) for name in self.federation.identities}

    def _node(self, name: PartyId, disk: PersistentState) -> Node:
        federation, state = self.federation, disk.copy()
        return Node(
            name=name,
            pump=Pump(federation.machine(name, state), state),
            codec=EnvelopeCodec(
                federation.identities[name],
                federation.roster,
                federation.parameters.config_hash,
                state.life,
                DEFAULT_LIMITS.for_vectors(federation.scheme.most_vector_bytes(federation.parameters)),
            ),
            disk=disk,
            learner=federation.learners.get(name),
            lost_before=self.lost.get(name),
        )

    def run(self) -> None:
        """Until everyone who is alive has ended, or nothing can happen any more."""
        for node in self.nodes.values():
            self._start(node)
        while not self._over():
            due = self._network.next_event_time()
            if self._training and (due is None or due > self.now):
                self._collect_training()
                continue
            if due is None or due > self.time_limit_s:
                break
            self.now = due
            for event in self._network.pop_due(due):
                self._happen(event)

    @property
    def endings(self) -> dict[PartyId, Ended]:
        """How the run ended, for each party for which it did."""
        return {name: node.ended for name, node in self.nodes.items() if node.ended is not None}

    def _start(self, node: Node) -> None:
        self.observer.began(self.now, node.name, node.machine)
        self._act(node, "start", node.pump.take(node.machine.start, self.now))

    def _over(self) -> bool:
        return self.observer.seen_enough or all(
            node.ended is not None or not node.alive for node in self.nodes.values()
        )

    def _happen(self, event: NetworkEvent) -> None:
        match event:
            case Delivery():
                self._deliver(self.nodes[PartyId(event.receiver)], event.payload)
            case TimerDue():
                node = self.nodes[PartyId(event.party)]
                node.armed = None
                if node.alive:
                    self._act(node, "deadline", node.pump.take(node.machine.handle_deadline, self.now))
            case Crashed():
                self.nodes[PartyId(event.party)].alive = False
            case Returned():
                self._restart(PartyId(event.party))
            case _:
                pass

    def _restart(self, name: PartyId) -> None:
        before = self.nodes[name]
        before.disk.life += 1
        node = self._node(name, before.disk)
        node.cpu_by_kind, node.training_cpu_s = before.cpu_by_kind, before.training_cpu_s
        node.bytes_sent, node.bytes_received = before.bytes_sent, before.bytes_received
        self.nodes[name] = node
        self._start(node)

    def _deliver(self, node: Node, payload: object) -> None:
        if not node.alive:
            return
        started = time.process_time()
        try:
            envelope = _received(payload)
            size = envelope_bytes(envelope)
            node.bytes_received += size
            sender, message = node.codec.open_envelope(envelope)
        except Duplicate:
            return
        except LocalProtocolError:
            raise
        except ProtocolError as error:
            self.refusals.append(RefusedDelivery(self.now, node.name, error))
            return
        kind = kind_of(message)
        node.cpu_by_kind[kind] += time.process_time() - started
        self.observer.received(self.now, node.name, sender, message, size)
        self._act(node, kind, node.pump.receive(sender, message, self.now))

    def _act(self, node: Node, kind: str, actions: Iterator[Action]) -> None:
        started, aside_before = time.process_time(), self._aside_s
        self._perform(node, actions)
        node.cpu_by_kind[kind] += time.process_time() - started - (self._aside_s - aside_before)
        self._rearm(node)

    def _rearm(self, node: Node) -> None:
        deadline = node.machine.next_deadline()
        if deadline is not None and deadline != node.armed and node.alive:
            node.armed = deadline
            self._network.set_timer(max(deadline, self.now), node.name)

    def _perform(self, node: Node, actions: Iterator[Action]) -> None:
        for action in actions:
            if not node.alive:
                return
            match action:
                case Keep():
                    node.disk = action.state.copy()
                case Tell():
                    with self._aside():
                        self.observer.noted(self.now, node.name, action.event)
                case Transmit():
                    self._send(node, action.receivers, action.message)
                case Refused():
                    self.refusals.append(RefusedDelivery(self.now, node.name, action.error, action.message))
                case WorkRequested():
                    self._work(node, action)
                case TrainingRequested():
                    self._train(node, action)

    def _send(self, node: Node, receivers: list[PartyId], message: Message) -> None:
        if node.lost_before is not None and type(message) is node.lost_before:
            node.alive = False
            return
        for chosen, travelling in self._travelling(node.name, receivers, message):
            self._transmit(node, chosen, travelling)

    def _travelling(
        self, sender: PartyId, receivers: list[PartyId], message: Message
    ) -> Iterator[tuple[list[PartyId], Message]]:
        if self.instead_of is None:
            yield receivers, message
            return
        for receiver in receivers:
            for told in self.instead_of(sender, receiver, message):
                yield [receiver], told

    def _transmit(self, node: Node, receivers: list[PartyId], message: Message) -> None:
        envelopes = node.codec.seal(receivers, message, node.machine.phase.value)
        arriving = memoryview(join(envelopes[0].body.buffers))
        for receiver, envelope in zip(receivers, envelopes, strict=True):
            size = envelope_bytes(envelope)
            node.bytes_sent += size
            with self._aside():
                self.observer.sent(self.now, node.name, receiver, message, size)
            payload = join(encode_envelope(envelope)) if self._byte_faults else (envelope, arriving)
            self._network.send(self.now, node.name, receiver, payload)

    def _work(self, node: Node, request: WorkRequested) -> None:
        try:
            result = request.job()
        except ProtocolError as error:
            self._perform(node, node.pump.drain(request.failed(error, self.now)))
        else:
            self._perform(node, node.pump.drain(request.then(result, self.now)))

    def _train(self, node: Node, request: TrainingRequested) -> None:
        assert node.learner is not None
        training = Training(node.name, request, node.learner)
        with self._aside_training(node):
            outcome = _update_or_error(lambda: self.engine.submit(training))
        if isinstance(outcome, Future):
            self._training.append((node, request, outcome))
        else:
            self._take_training(node, request, outcome)

    def _collect_training(self) -> None:
        """Wait for what is being trained, in the order of submission; a party that is gone gets no result."""
        while self._training:
            node, request, future = self._training.popleft()
            with self._aside_training(node):
                outcome = _update_or_error(future.result)
            if node.alive and self.nodes[node.name] is node:
                self._take_training(node, request, outcome)
                self._rearm(node)

    def _take_training(
        self, node: Node, request: TrainingRequested, outcome: LocalUpdate | ProtocolError
    ) -> None:
        if isinstance(outcome, ProtocolError):
            self._perform(node, node.pump.drain(request.failed(outcome, self.now)))
            return
        if not isinstance(outcome, LocalUpdate):
            raise LocalProtocolError(
                f"{type(self.engine).__name__}.submit gave {outcome!r:.60} for {node.name}, not a LocalUpdate"
            )
        with self._aside():
            self.observer.trained(self.now, node.name, request.round, outcome)
        result = LocalResult(outcome.payload, outcome.samples)
        self._perform(node, node.pump.drain(request.then(result, self.now)))

    @contextlib.contextmanager
    def _aside_training(self, node: Node) -> Iterator[None]:
        before = self._aside_s
        try:
            with self._aside():
                yield
        finally:
            node.training_cpu_s += self._aside_s - before

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """What happens inside costs CPU time that is not the protocol's."""
        started = time.process_time()
        try:
            yield
        finally:
            self._aside_s += time.process_time() - started

    @property
    def server(self) -> Node:
        return self.nodes[SERVER]

    @property
    def participants(self) -> list[Node]:
        return [node for name, node in self.nodes.items() if name != SERVER]


def _update_or_error(work: Callable[[], Outcome]) -> Outcome | ProtocolError:
    try:
        return work()
    except ProtocolError as error:
        return error


def _received(payload: object) -> Envelope:
    """What came off the network: bytes to decode, or a decoded front and the body's bytes, not hashed here yet."""
    if isinstance(payload, tuple):
        envelope, arriving = payload
        return Envelope(envelope.header, Body([arriving]), envelope.signature)
    assert isinstance(payload, bytes | memoryview)
    return decode_envelope(payload)


def envelope_bytes(envelope: Envelope) -> int:
    return sum(len(buffer) for buffer in encode_envelope(envelope))
