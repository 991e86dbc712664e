"""Framing in real time: a `Transport` made of a `Link` and an `Endpoint`, whatever the link is.

Two tasks share the endpoint. The reader feeds it what the link brings; the writer sends what it wants sent
and sleeps until its next deadline. All decisions are the endpoint's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from veilsum.transport.base import Datagram, GoneHint, Received, Reconnected, ignore_news
from veilsum.transport.closing import end_task
from veilsum.transport.errors import Closed, TransportError
from veilsum.transport.foreign import ForeignReader
from veilsum.transport.framing.outcomes import Failed
from veilsum.transport.limits import MIB

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer, Link, LinkNews
    from veilsum.transport.framing.endpoint import Endpoint

FAREWELL_S = 2.0
"""How long closing may take to get the last acknowledgements out."""
END_S = 1.0
"""How long reader and writer may take to end after that; the link has limits of its own."""


class FramedTransport:
    """Reliable messages of one address over any link.

    `on_gone` is told when the link believes that a party has gone, `on_link` when its connection is lost or back.
    """

    def __init__(
        self,
        link: Link,
        endpoint: Endpoint,
        on_gone: Callable[[Address], None] | None = None,
        on_link: Callable[[LinkNews], None] = ignore_news,
    ) -> None:
        self._link = link
        self._endpoint = endpoint
        self._on_gone = on_gone
        self._on_link = on_link
        self._waiting: dict[tuple[Address, int], asyncio.Future[None]] = {}
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._failure: TransportError | None = None
        self.foreign = ForeignReader()
        self._running: asyncio.Task[None] | None = None

    @property
    def address(self) -> Address:
        return self._endpoint.address

    async def __aenter__(self) -> Self:
        _keep_freed_memory()
        await self._link.__aenter__()
        self._endpoint.limit_datagrams(self._link.largest_datagram)
        self._running = asyncio.create_task(self._run(), name=f"transport of {self.address}")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._running is not None and self._failure is None:
            with contextlib.suppress(TimeoutError, TransportError):
                await asyncio.wait_for(self._send_what_is_ready(), FAREWELL_S)
        self._fail(Closed(self.address))
        running = self._running
        ended = running is not None and await end_task(running, END_S)
        await self._link.__aexit__(*exc_info)
        if running is not None and ended and not running.cancelled():
            running.result()

    async def send(self, receiver: Address, payload: Sequence[Buffer], deadline_s: float) -> None:
        """Return when `receiver` has acknowledged the whole message, or raise by the deadline."""
        self._require_open()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + deadline_s
        number = self._endpoint.send(receiver, payload, give_up_at)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[receiver, number] = future
        self._announce()
        giving_up = loop.call_at(give_up_at, self._handle_deadline, give_up_at)
        self._wanted.set()
        try:
            await future
        finally:
            giving_up.cancel()
            if self._waiting.pop((receiver, number), None) is not None:
                self._endpoint.cancel(receiver, number)

    async def receive(self) -> Received:
        """Wait for the next whole message; what has arrived can still be taken after a failure."""
        while (delivered := self._endpoint.take()) is None:
            self._require_open()
            self._arrived.clear()
            await self._arrived.wait()
        self._wanted.set()
        return Received(delivered.sender, delivered.payload)

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._running is None:
            raise Closed(self.address)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                tasks.create_task(self._write())
        except* TransportError as group:
            self._fail(_first_of(group))
        finally:
            self._fail(Closed(self.address))

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            event = await self._link.receive()
            if isinstance(event, Datagram):
                take = partial(self._endpoint.receive_datagram, event.sender_hint, event.data, loop.time())
                self.foreign.read("datagram", event.sender_hint, take)
                while (refusal := self._endpoint.next_refusal()) is not None:
                    self.foreign.note("message", refusal.sender, refusal)
            elif isinstance(event, GoneHint):
                if self._on_gone is not None:
                    self.foreign.read("will", event.address, partial(self._on_gone, event.address))
            else:
                self._on_link(event)
                if isinstance(event, Reconnected):
                    self._endpoint.limit_datagrams(self._link.largest_datagram)
                    self._endpoint.link_restored()
            self._announce()
            self._wanted.set()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wanted.clear()
            self._handle_deadline(loop.time())
            await self._send_what_is_ready()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._endpoint.next_deadline()):
                    await self._wanted.wait()

    async def _send_what_is_ready(self) -> None:
        loop = asyncio.get_running_loop()
        while (item := self._endpoint.next_datagram(loop.time())) is not None:
            await self._link.send(*item)
        self._announce()

    def _handle_deadline(self, now: float) -> None:
        """Also called by itself, so that a writer blocked by the link does not hold up the bad news."""
        self._endpoint.handle_deadline(now)
        self._announce()

    def _announce(self) -> None:
        """Tell those who wait what has become of their messages."""
        while (outcome := self._endpoint.next_outcome()) is not None:
            future = self._waiting.pop((outcome.receiver, outcome.message), None)
            if future is None or future.done():
                continue
            if isinstance(outcome, Failed):
                future.set_exception(outcome.error)
            else:
                future.set_result(None)
        while (dropped := self._endpoint.next_dropped()) is not None:
            self.foreign.note("peer", dropped.peer, dropped.error)
        self._arrived.set()

    def _fail(self, error: TransportError) -> None:
        if self._failure is None:
            self._failure = error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._failure)
        self._arrived.set()


def _keep_freed_memory() -> None:
    """Make glibc keep freed chunks for the next ones.

    It hands blocks of this size back to the kernel when they are freed, and every chunk then pays for fresh
    pages: half of the CPU time of a transfer. Freeing one larger block, which costs nothing as its pages
    are never touched, raises its thresholds for the life of the process. Other allocators do not mind.
    """
    bytes(31 * MIB)


def _first_of(group: BaseExceptionGroup[TransportError]) -> TransportError:
    error = group.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error
