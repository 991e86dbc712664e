"""Drives one machine over a transport, in four beats: feed, drain, send, re-arm.

    feed    one message, one deadline, or the result of one job
    drain   perform the events in the order of pump.py; what must be durable is on disk before the next event
    send    sign each message and hand it to the transport; receivers do not wait for each other
    re-arm  wait for the next thing to feed, no longer than the machine's deadline

The driver decides nothing about the protocol. Training, expansion and the hashing of large messages run in an
injected executor, so that the event loop keeps the connection alive meanwhile. The disk has another, of one thread:
checkpoints are written in order, and never wait for training that nobody waits for any more. Sends are tasks:
asyncio starts them in the order in which they were created, and the transport keeps that order for each receiver. A
send that is not acknowledged in time is told and forgotten; the machine has deadlines of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from veilsum.protocol.errors import LocalProtocolError, ProtocolError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.events import (
    Event,
    RoundCommitted,
    RunFailed,
    RunFinished,
    TrainingRequested,
    WorkRequested,
)
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.wire.envelope import Envelope, encode_envelope
from veilsum.protocol.wire.messages import Message
from veilsum.protocol.wire.replay import Duplicate
from veilsum.roles.learning.contract import Learner, train_as_asked
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.measuring import LAST_WITHIN_S, Measuring
from veilsum.roles.monitor.owing import Owing
from veilsum.roles.process.clock import Clock, date, monotonic
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.observer import RunObserver
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.roles.process.pump import Action, Ended, Keep, Pump, Refused, Step, Tell, Transmit
from veilsum.transport.base import Transport
from veilsum.transport.errors import TransportError
from veilsum.transport.foreign import Defect, ForeignReader, RateLimit

LARGE_BYTES = 1 << 20
"""Messages from here on are hashed away from the event loop."""
MOST_WAITING = 64
"""Messages that wait for the machine; beyond that the transport holds back their senders."""

SHORTEST_LINGER_S = 0.3
MESSAGE = "message"

Feed: TypeAlias = Callable[[float], Iterator[Action]]
"""Something to feed the machine: given the time, what is to be done about it."""
T = TypeVar("T")


class Checkpoints(Protocol):
    """Whoever makes a state durable."""

    def save(self, state: PersistentState) -> None: ...


@dataclass
class Tally:
    """What a driver has seen so far."""

    sent_bytes: int = 0
    received_bytes: int = 0
    training: bool = False
    owing: Owing = field(default_factory=Owing)
    defects: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> int:
        return self.defects.total()


@dataclass
class Driver:
    party: PartyId
    machine: Machine
    codec: EnvelopeCodec
    transport: Transport
    state: PersistentState
    checkpoints: Checkpoints
    executor: Executor
    disk: Executor
    log: RoleLog
    learner: Learner | None = None
    send_within_s: float = 60.0
    linger_s: float = 10.0
    """How long to go on after the end, for those who have not acknowledged it."""
    clock: Clock = monotonic
    wall_clock: Clock = date
    """The time that the observer is told."""
    observer: RunObserver = field(default_factory=RunObserver)
    measuring: Measuring | None = None

    def __post_init__(self) -> None:
        self._foreign = ForeignReader(self._tell_refusal, expected=(Duplicate,))
        self.tally = Tally(defects=self._foreign.counts)
        self._undelivered = RateLimit(self.clock)
        self._pump = Pump(self.machine, self.state)
        self._inbox: asyncio.Queue[Feed] = asyncio.Queue(MOST_WAITING)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._rounds_kept = self.state.rounds_done

    @property
    def ended(self) -> Ended | None:
        return self._pump.ended

    def finish(self, rounds: int) -> Ended | None:
        """How the run has come to its end for a party that goes now: whoever has all rounds on disk has finished.

        That it has not heard the server's last word changes nothing, unless that is to bring it the model.
        """
        has_model = self.party == SERVER or self.state.model is not None
        if self.ended is None and self._rounds_kept >= rounds and has_model:
            self._pump.ended = RunFinished(self._rounds_kept, self.state.model)
            self.log.tell(self._pump.ended)
        return self.ended

    async def run(self) -> Ended:
        """Until the machine has come to its end, and the others have heard of it or had the time to."""
        self._begin(self._read())
        self.observer.began(self.wall_clock(), self.party, self.machine)
        try:
            await self._perform(partial(self._pump.take, self.machine.start))
            while self.ended is None:
                await self._perform(await self._next_feed())
            await asyncio.gather(self._linger(), self._tell_end(self.ended))
        finally:
            self._tell_left_out()
            await self._cancel_all()
        return self.ended

    # Feed.

    async def _next_feed(self) -> Feed:
        deadline = self.machine.next_deadline()
        patience = None if deadline is None else max(0.0, deadline - self.clock())
        try:
            async with asyncio.timeout(patience):
                return await self._inbox.get()
        except TimeoutError:
            return self._feed_of(self.machine.handle_deadline)

    async def _read(self) -> None:
        """Messages that are signed, addressed to us and new are fed; a broken transport is the last thing that is."""
        try:
            while True:
                received = await self.transport.receive()
                self.tally.received_bytes += len(received.payload)
                read = partial(
                    self._foreign.read,
                    MESSAGE,
                    received.sender_hint,
                    partial(self.codec.open, received.sender_hint, received.payload),
                )
                opened = await self._maybe_aside(len(received.payload), read)
                if opened is None:
                    continue
                sender, message = opened
                self.observer.received(self.wall_clock(), self.party, sender, message, len(received.payload))
                await self._inbox.put(partial(self._hear, sender, message))
        except TransportError as error:
            await self._feed_step(partial(_raise, error))

    def _hear(self, sender: PartyId, message: Message, now: float) -> Iterator[Action]:
        """A refusal that names nobody is a mistake of the machine; what others send must not end a process over it."""
        try:
            yield from self._pump.receive(sender, message, now)
        except Rejection as refusal:
            self._refuse(refusal, sender)

    async def _feed_step(self, step: Step) -> None:
        await self._inbox.put(self._feed_of(step))

    def _feed_of(self, step: Step) -> Feed:
        """What others sent may turn out wrong only after a job or at a deadline: that ends no process."""

        def told_if_refused(now: float) -> list[Event]:
            try:
                return step(now)
            except (Rejection, RemoteProtocolError) as refusal:
                self._refuse(refusal, getattr(refusal, "culprit", ""))
                return []

        return partial(self._pump.take, told_if_refused)

    def _tell_left_out(self) -> None:
        """What was too much to be told one by one is told as a number, before the end is."""
        self._foreign.close()
        for count in self._undelivered.left_out().values():
            self.log.say("not_delivered", text="too many to tell one by one", count=count)

    def _refuse(self, error: ProtocolError, sender: str) -> None:
        self._foreign.note(MESSAGE, sender, error)

    def _tell_refusal(self, defect: Defect) -> None:
        text = str(defect.error) if isinstance(defect.error, ProtocolError) else defect.why
        more = {"count": defect.count} if defect.count > 1 else {}
        self.log.say("refused", sender=defect.sender_hint, text=text, **more)

    # Drain.

    async def _perform(self, feed: Feed) -> None:
        for action in feed(self.clock()):
            match action:
                case Keep():
                    await self._keep(action.state)
                case Tell():
                    await self._tell(action.event)
                case Transmit():
                    await self._send(action.receivers, action.message)
                case Refused():
                    self._refuse(action.error, action.sender)
                case WorkRequested():
                    self._begin(self._work(action))
                case TrainingRequested():
                    self._begin(self._train(action))

    async def _keep(self, state: PersistentState) -> None:
        save = partial(self.checkpoints.save, state)
        await asyncio.get_running_loop().run_in_executor(self.disk, save)
        self._rounds_kept = state.rounds_done

    async def _tell(self, event: Event) -> None:
        model, tally = getattr(event, "model", None), self.tally
        if isinstance(event, RunFailed):
            self._tell_left_out()
        if not isinstance(event, RunFinished):
            await self._maybe_aside(0 if model is None else model.nbytes, partial(self.log.tell, event))
        if isinstance(event, RoundCommitted):
            self.log.tell_traffic(event, tally.sent_bytes, tally.received_bytes)
        self.observer.noted(self.wall_clock(), self.party, event)
        if isinstance(event, RoundCommitted) and event.model is not None and self.learner is None:
            self._begin(self._measure_own(event.round + 1, event.model))

    async def _work(self, request: WorkRequested) -> None:
        try:
            result = await self._aside(request.job)
        except ProtocolError as error:
            await self._feed_step(partial(request.failed, error))
        else:
            await self._feed_step(partial(request.then, result))

    async def _train(self, request: TrainingRequested) -> None:
        learner = self.learner
        if learner is None:
            raise LocalProtocolError("this role does not train")
        self.tally.training = True
        try:
            update = await self._aside(partial(train_as_asked, learner, request))
        except ProtocolError as error:
            self.log.say("training_failed", round=shown_number(request.round), text=str(error))
            await self._feed_step(partial(request.failed, error))
        else:
            self.observer.trained(self.wall_clock(), self.party, request.round, update)
            self.log.say("trained", round=shown_number(request.round), loss=update.loss)
            result = LocalResult(update.payload, update.samples)
            await self._feed_step(partial(request.then, result))
            self.tally.training = False
            await self._measure(request)
        finally:
            self.tally.training = False

    async def _measure(self, request: TrainingRequested) -> None:
        """The model that we trained from is the one of the round before, unless the scheme gave us other work."""
        if self.measuring is not None and request.work is None:
            await self.measuring.now_or_never(request.round, request.model, self._aside)

    async def _measure_own(self, rounds_done: int, model: Model) -> None:
        """A server that measures begins while the parties train on the next model."""
        if self.measuring is not None:
            await self.measuring.now_or_never(rounds_done, model, self._aside)

    async def _tell_end(self, ended: Ended) -> None:
        """That the run is finished is the last line: what is measured of its model stands before it.

        Whoever is stopped meanwhile has finished all the same.
        """
        if not isinstance(ended, RunFinished):
            return
        try:
            await self._measure_last(ended)
        finally:
            self._tell_left_out()
            self.log.tell_traffic(ended, self.tally.sent_bytes, self.tally.received_bytes)
            self.log.tell(ended)

    async def _measure_last(self, ended: RunFinished) -> None:
        if self.measuring is None or ended.model is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await self.measuring.at_last(ended.rounds, ended.model, self._aside)

    # Send.

    async def _send(self, receivers: list[PartyId], message: Message) -> None:
        seal = partial(self.codec.seal, receivers, message, self.machine.phase.value)
        envelopes = await self._maybe_aside(_tensor_bytes(message), seal)
        for receiver, envelope in zip(receivers, envelopes, strict=True):
            self._begin(self._deliver(receiver, message, envelope), self._sending)

    async def _deliver(self, receiver: PartyId, message: Message, envelope: Envelope) -> None:
        buffers = encode_envelope(envelope)
        size = sum(len(buffer) for buffer in buffers)
        self.observer.sent(self.wall_clock(), self.party, receiver, message, size)
        try:
            with self.tally.owing.by(receiver):
                await self.transport.send(receiver, buffers, self.send_within_s)
            self.tally.sent_bytes += size
        except TransportError as error:
            self._tell_not_delivered(receiver, envelope.header.kind, error)

    def _tell_not_delivered(self, receiver: PartyId, kind: str, error: TransportError) -> None:
        """A receiver decides whether it acknowledges: it does not decide how long our log gets."""
        left_out = self._undelivered.admit("not_delivered", receiver)
        if left_out is not None:
            more = {"count": left_out + 1} if left_out else {}
            self.log.say("not_delivered", receiver=receiver, kind=kind, text=str(error), **more)

    async def _linger(self) -> None:
        """Deliver what is under way and go on answering, until all is acknowledged or the time is up.

        A moment passes in any case: whoever sent us the last message may ask whether it arrived.
        """
        ended_at = self.clock()
        while (left := ended_at + self._linger_for() - self.clock()) > 0:
            getter = asyncio.ensure_future(self._inbox.get())
            await asyncio.wait({getter, *self._sending}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if getter.done():
                await self._perform(getter.result())
            else:
                getter.cancel()

    def _linger_for(self) -> float:
        """A server that has told us that the run is finished may be gone: nothing on its way there is waited for."""
        gone = SERVER if isinstance(self.ended, RunFinished) else None
        awaited = self.tally.owing.receivers() - {gone}
        return self.linger_s if awaited else min(self.linger_s, SHORTEST_LINGER_S)

    # Tasks.

    def _begin(self, work: Coroutine[Any, Any, None], also_in: set[asyncio.Task[None]] | None = None) -> None:
        task = asyncio.create_task(work)
        for group in (self._tasks, also_in):
            if group is not None:
                group.add(task)
                task.add_done_callback(group.discard)
        task.add_done_callback(self._pass_on_failure)

    def _pass_on_failure(self, task: asyncio.Task[None]) -> None:
        """What a task did not expect ends the run, instead of vanishing with the task."""
        if not task.cancelled() and (error := task.exception()) is not None:
            if self._inbox.full():
                self._inbox.get_nowait()
            self._inbox.put_nowait(partial(self._pump.take, partial(_raise, error)))

    async def _maybe_aside(self, size: int, work: Callable[[], T]) -> T:
        return await self._aside(work) if size >= LARGE_BYTES else work()

    async def _aside(self, work: Callable[[], T]) -> T:
        """Run something slow away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    async def _cancel_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _raise(error: BaseException, now: float) -> list[Event]:  # noqa: ARG001 - a step is given the time
    raise error


def _tensor_bytes(message: Message) -> int:
    values = (getattr(message, one.name) for one in dataclasses.fields(message))
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))
