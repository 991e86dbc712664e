"""Machines on virtual time: feed, drain, send, re-arm. A simulated hour takes as long as its messages take.

Every message travels as a signed envelope, as it would between computers. Training and other heavy work run
inline and take no virtual time. A party that is to be lost at some phase crashes right before it sends the
message that ends the phase.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from veilsum.protocol.errors import LocalProtocolError, ProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RunFailed, RunFinished, TrainingRequested, WorkRequested
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.wire.envelope import Body, Envelope, decode_envelope, encode_envelope, join
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.protocol.wire.replay import Duplicate
from veilsum.roles.learning.contract import Learner, LocalUpdate, train_as_asked
from veilsum.roles.process.envelopes import EnvelopeCodec, grouped_sends
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.persistent_state import PersistentState
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


@dataclass
class Node:
    """One party: its machine, its envelope codec, what it has on disk, and what it cost."""

    name: PartyId
    machine: Machine
    post: EnvelopeCodec
    durable: PersistentState
    learner: Learner | None
    lost_before: type[Message] | None = None
    alive: bool = True
    armed: float | None = None
    cpu_by_kind: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """CPU seconds by the kind of message (or `start`, `deadline`) they were spent on, training left out."""
    training_cpu_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    ended: RunFinished | RunFailed | None = None

    @property
    def cpu_s(self) -> float:
        return float(sum(self.cpu_by_kind.values()))


@dataclass(frozen=True)
class Refusal:
    time: float
    party: PartyId
    error: ProtocolError


class Observer:
    """What a simulation tells while it runs; override what you want to hear."""

    seen_enough = False
    """Set it to end the simulation before its parties do."""

    def on_event(self, now: float, node: Node, event: Event) -> None:
        """A machine stated a fact."""

    def on_training(self, node: Node, round_number: int, update: LocalUpdate) -> None:
        """A party has trained."""

    def on_send(self, now: float, sender: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        """A message is on its way, as so many bytes."""


class Network(Protocol):
    """Virtual time and whatever travels on it; transport.memory has two of them."""

    def send(self, now: float, sender: str, receiver: str, payload: object) -> None: ...
    def set_timer(self, at: float, party: str, token: object = None) -> None: ...
    def next_event_time(self) -> float | None: ...
    def pop_due(self, now: float) -> list[NetworkEvent]: ...


@dataclass
class Simulation:
    federation: Federation
    faults: Faults = field(default_factory=Faults)
    lost: Mapping[PartyId, type[Message]] = field(default_factory=dict)
    """Who crashes for good, and before which of its messages."""
    observer: Observer = field(default_factory=Observer)
    network: Network | None = None
    """How messages travel; by default the virtual network with these faults."""
    time_limit_s: float = 10 * 24 * 3600.0

    def __post_init__(self) -> None:
        self.now = 0.0
        self._network = self.network or simulated_network(self.faults, self.federation.config.seed)
        self._aside_s = 0.0
        self._byte_faults = self.faults.lose_datagrams or self.faults.corrupt > 0
        self.refusals: list[Refusal] = []
        self.nodes = {name: self._node(name, self.federation.fresh()) for name in self.federation.identities}

    def _node(self, name: PartyId, durable: PersistentState) -> Node:
        federation = self.federation
        return Node(
            name=name,
            machine=federation.machine(name, durable),
            post=EnvelopeCodec(
                federation.identities[name],
                federation.roster,
                federation.parameters.config_hash,
                durable.life,
            ),
            durable=durable,
            learner=federation.learners.get(name),
            lost_before=self.lost.get(name),
        )

    def run(self) -> None:
        """Until everyone who is alive has ended, or nothing can happen any more."""
        for node in self.nodes.values():
            self._act(node, "start", node.machine.start)
        while not self._over():
            due = self._network.next_event_time()
            if due is None or due > self.time_limit_s:
                break
            self.now = due
            for event in self._network.pop_due(due):
                self._happen(event)

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
                    self._act(node, "deadline", node.machine.handle_deadline)
            case Crashed():
                self.nodes[PartyId(event.party)].alive = False
            case Returned():
                self._restart(PartyId(event.party))
            case _:
                pass

    def _restart(self, name: PartyId) -> None:
        before = self.nodes[name]
        before.durable.life += 1
        node = self._node(name, before.durable)
        node.cpu_by_kind, node.training_cpu_s = before.cpu_by_kind, before.training_cpu_s
        node.bytes_sent, node.bytes_received = before.bytes_sent, before.bytes_received
        self.nodes[name] = node
        self._act(node, "start", node.machine.start)

    def _deliver(self, node: Node, payload: object) -> None:
        if not node.alive:
            return
        started = time.process_time()
        try:
            envelope = _received(payload)
            node.bytes_received += envelope_bytes(envelope)
            sender, message = node.post.open_envelope(envelope)
            kind = kind_of(message)
            node.cpu_by_kind[kind] += time.process_time() - started
            self._act(node, kind, lambda now: node.machine.receive(sender, message, now))
        except Duplicate:
            return
        except LocalProtocolError:
            raise
        except ProtocolError as error:
            self.refusals.append(Refusal(self.now, node.name, error))

    def _act(self, node: Node, kind: str, step: Callable[[float], list[Event]]) -> None:
        started, aside_before = time.process_time(), self._aside_s
        self._perform(node, step(self.now))
        node.cpu_by_kind[kind] += time.process_time() - started - (self._aside_s - aside_before)
        deadline = node.machine.next_deadline()
        if deadline is not None and deadline != node.armed and node.alive:
            node.armed = deadline
            self._network.set_timer(max(deadline, self.now), node.name)

    def _perform(self, node: Node, events: list[Event]) -> None:
        for event in grouped_sends(events):
            if not node.alive:
                return
            match event:
                case (receivers, message):
                    self._send(node, receivers, message)
                case WorkRequested():
                    self._work(node, event)
                case TrainingRequested():
                    self._train(node, event)
                case _:
                    node.durable.note(event)
                    if isinstance(event, RunFinished | RunFailed):
                        node.ended = event
                    with self._aside():
                        self.observer.on_event(self.now, node, event)

    def _send(self, node: Node, receivers: list[PartyId], message: Message) -> None:
        if node.lost_before is not None and type(message) is node.lost_before:
            node.alive = False
            return
        envelopes = node.post.seal(receivers, message, node.machine.phase.value)
        arriving = memoryview(join(envelopes[0].body.buffers))
        for receiver, envelope in zip(receivers, envelopes, strict=True):
            size = envelope_bytes(envelope)
            node.bytes_sent += size
            with self._aside():
                self.observer.on_send(self.now, node.name, receiver, message, size)
            payload = join(encode_envelope(envelope)) if self._byte_faults else (envelope, arriving)
            self._network.send(self.now, node.name, receiver, payload)

    def _work(self, node: Node, request: WorkRequested) -> None:
        try:
            result = request.job()
        except ProtocolError as error:
            self._perform(node, request.failed(error, self.now))
        else:
            self._perform(node, request.then(result, self.now))

    def _train(self, node: Node, request: TrainingRequested) -> None:
        assert node.learner is not None
        aside_before = self._aside_s
        try:
            with self._aside():
                update = train_as_asked(node.learner, request)
                self.observer.on_training(node, request.round, update)
        except ProtocolError as error:
            self._perform(node, request.failed(error, self.now))
            return
        finally:
            node.training_cpu_s += self._aside_s - aside_before
        self._perform(node, request.then(LocalResult(update.payload, update.samples), self.now))

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


def _received(payload: object) -> Envelope:
    """What came off the network: bytes to decode, or a decoded front and the body's bytes, not hashed here yet."""
    if isinstance(payload, tuple):
        envelope, arriving = payload
        return Envelope(envelope.header, Body([arriving]), envelope.signature)
    assert isinstance(payload, bytes | memoryview)
    return decode_envelope(payload)


def envelope_bytes(envelope: Envelope) -> int:
    return sum(len(buffer) for buffer in encode_envelope(envelope))
