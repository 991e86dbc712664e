"""How one machine's events are performed: one contract for real time, virtual time and the test table.

    feed     one message, one deadline, or the result of one job
    keep     what must survive a restart is durable before the next event is looked at
    tell     then whoever watches hears of the fact
    send     a message leaves only after everything that stands before it
    run      work and training are begun; their results are fed as further steps

The pump yields what is to be done, in order, and goes on when it is asked for the next action. So its caller decides
how to act, and may wait for a disk or a signature meanwhile, but not when. It performs each action before the next.

Only what `receive` raises as a `RemoteProtocolError` is a refusal, and it names who sent the message. Everything else
that a machine raises goes to the caller: a mistake of its own in a simulation or a test, while a process that others
depend on tells of a refusal that a job brought to light, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from veilsum.protocol.errors import RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event, RunFailed, RunFinished, TrainingRequested, WorkRequested
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.envelopes import grouped_sends
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.persistent_state import PersistentState

Step: TypeAlias = Callable[[float], list[Event]]
Ended: TypeAlias = RunFinished | RunFailed


@dataclass(frozen=True)
class Keep:
    """Make the state durable before you ask for the next action."""

    state: PersistentState


@dataclass(frozen=True)
class Tell:
    """The machine stated a fact; what it changes is durable."""

    event: Event


@dataclass(frozen=True)
class Transmit:
    """Send one message to each of these, in this order."""

    receivers: list[PartyId]
    message: Message


@dataclass(frozen=True)
class Refused:
    """The machine did not accept a message, and is as it was before."""

    sender: PartyId
    message: Message
    error: RemoteProtocolError


Action: TypeAlias = Keep | Tell | Transmit | Refused | WorkRequested | TrainingRequested


@dataclass
class Pump:
    """One machine and what its party knows after a restart; `ended` is how its run came to an end."""

    machine: Machine
    state: PersistentState
    ended: Ended | None = None

    def receive(self, sender: PartyId, message: Message, now: float) -> Iterator[Action]:
        """Feed one message."""
        try:
            events = self.machine.receive(sender, message, now)
        except RemoteProtocolError as error:
            yield Refused(sender, message, error)
            yield from self._object(message, error)
            return
        yield from self.drain(events)

    def _object(self, message: Message, error: RemoteProtocolError) -> Iterator[Action]:
        if isinstance(self.machine, ParticipantMachine):
            yield from self.drain(self.machine.objection(message, error))

    def take(self, step: Step, now: float) -> Iterator[Action]:
        """Feed anything else: the start, a deadline, the result of a job."""
        yield from self.drain(step(now))

    def drain(self, events: Iterable[Event]) -> Iterator[Action]:
        """What is to be done about these events, in their order."""
        for event in grouped_sends(events):
            match event:
                case (receivers, message):
                    yield Transmit(receivers, message)
                case WorkRequested() | TrainingRequested():
                    yield event
                case _:
                    yield from self._fact(event)

    def _fact(self, event: Event) -> Iterator[Action]:
        if self.state.note(event):
            yield Keep(self.state)
        if isinstance(event, RunFinished | RunFailed):
            self.ended = event
        yield Tell(event)
