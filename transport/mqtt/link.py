"""Datagrams over MQTT.

The link keeps one connection alive: it connects, subscribes, reads, and after any failure backs off with
jitter, connects and subscribes again. It promises nothing about single datagrams, and does not need to:
framing acknowledges end to end. So datagrams travel at QoS 0 in a clean session. Rejected: QoS 1, which
costs the broker a second book-keeping of every chunk and was measured slower, and still loses messages
beyond the broker's queue limits; and persistent sessions, which replay megabytes that framing would have to
throw away.

A connection that somebody takes over, by connecting under our client identifier, is made again like any other, after
a pause that grows: a broker that ties identifiers to logins lets nobody do that who does not have our password, and
one that does not must not be able to end a run with it. Rejected: to end with an error that asks the operator to stop
one of two processes, which gave every login of such a broker the power to end every process.

Only a certificate or a login that is wrong ends a link for good. A handshake that breaks does not: a load balancer
accepts connections for a broker that is just starting again, and hangs up.

Implements specs/transport.md, sections 2 and 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Self

import aiomqtt

from veilsum.transport.base import Datagram, GoneHint, Interrupted, LinkEvent, Reconnected
from veilsum.transport.closing import end_task
from veilsum.transport.errors import BrokerRefused, BrokerUnreachable, Closed, TooLarge
from veilsum.transport.fair_queue import FairQueue
from veilsum.transport.foreign import ForeignReader, RateLimit
from veilsum.transport.limits import KIB
from veilsum.transport.mqtt.client import (
    FINAL_REFUSALS,
    LARGEST_ACCEPTED,
    SESSION_TAKEN_OVER,
    UNSPECIFIED,
    V5,
    V311,
    WRONG_VERSION,
    BrokerClient,
    code_of,
    is_wrong_certificate,
    library_logger,
    new_client,
    reason_of,
)
from veilsum.transport.mqtt.topics import Topics, require_name

if TYPE_CHECKING:
    from veilsum.transport.base import Address
    from veilsum.transport.mqtt.broker_address import BrokerAddress

TIMEOUT_S = 10.0
GUESSING_S = 3.0
"""How long a broker whose version we do not know may take to answer the first time; some ignore MQTT 5."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
LASTING_S = 2.0
MOST_SHORT_LIVED = 5
"""So many connections in a row that end at once are worth a warning."""
LARGEST_STATUS = 64 * KIB
MOST_WAITING = 64
LINK_DEPTH = 3
PACKET_HEAD = 16
"""What a packet needs at most beside its topic and payload."""
LONGEST_TOPIC = 200
"""So much of a topic is shown."""
FAREWELL_S = 2.0
"""How long closing may take to say that we leave."""
DISCONNECT_S = 3.0
"""How long closing may take to disconnect after that."""

_logger = logging.getLogger(__name__)
_library_logger = library_logger(f"{__name__}.client", RateLimit())


class StatusQueue(FairQueue[Datagram]):
    """Statuses that nobody has taken yet; of each party the newest few."""

    places_of_one = 8
    bytes_of_one = 8 * LARGEST_STATUS

    def sender_of(self, item: Datagram) -> str:
        return item.sender_hint

    def size_of(self, item: Datagram) -> int:
        return len(item.data)


class MqttLink:
    """An unreliable datagram link of one address over a broker.

    With `watches_only` it hears statuses, and neither publishes anything nor leaves a will.
    """

    def __init__(
        self,
        broker: BrokerAddress,
        topics: Topics,
        address: Address,
        connect_within_s: float = 60.0,
        *,
        watches_only: bool = False,
    ) -> None:
        self._watches_only = watches_only
        self._broker = broker
        self._topics = topics
        self._address = require_name(address)
        self._connect_within_s = connect_within_s
        self._tls = None if broker.tls is None else broker.tls.context()
        self._protocol = V311 if broker.version == "3.1.1" else V5
        self._answer_within_s = GUESSING_S if broker.version == "auto" else TIMEOUT_S
        self._client: BrokerClient | None = None
        self._events: asyncio.Queue[LinkEvent | None] = asyncio.Queue(MOST_WAITING)
        self._publishing: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(LINK_DEPTH)
        self._statuses: StatusQueue | None = None
        self._notices: asyncio.Queue[bytes] | None = None
        self._ever_connected = asyncio.Event()
        self._last_trouble = "no attempt was made"
        self._told_trouble = ""
        self.foreign = ForeignReader()
        self._failures = RateLimit()
        self._task: asyncio.Task[None] | None = None

    @property
    def largest_datagram(self) -> int | None:
        """What the broker takes, if it told us (MQTT 5)."""
        return None if self._client is None else self._client.largest_packet

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._stay_connected(), name=f"link of {self._address}")
        self._task.add_done_callback(lambda _: self._wake_receiver())
        waiter = asyncio.create_task(self._ever_connected.wait())
        try:
            await asyncio.wait(
                (waiter, self._task), timeout=self._connect_within_s, return_when=asyncio.FIRST_COMPLETED
            )
            if self._task.done():
                self._task.result()
            if not waiter.done():
                raise BrokerUnreachable(str(self._broker), self._last_trouble)
        except BaseException:
            await self._stop()
            raise
        finally:
            waiter.cancel()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Say that we leave, and end, each within its time: a broker that is stuck holds nobody up."""
        if not self._watches_only:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self._publish(self._topics.gone(self._address), b"closed", qos=1)
                    if self._publishing:
                        await asyncio.wait(self._publishing)
        await self._stop()

    def _wake_receiver(self) -> None:
        while self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(None)

    async def send(self, receiver: Address, datagram: bytes) -> None:
        """Publish, or lose the datagram when there is no connection; framing notices either way."""
        await self._publish(self._topics.datagrams(receiver, self._address), datagram)

    async def receive(self) -> LinkEvent:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            assert self._task is not None
            self._task.result()
            raise Closed(self._address)
        return event

    async def publish_status(self, status: bytes) -> None:
        """Tell everybody who listens how we are; at most once, kept by nobody."""
        if len(status) > LARGEST_STATUS:
            raise TooLarge("status", len(status), LARGEST_STATUS, "the limit of a status")
        await self._publish(self._topics.status(self._address), status)

    async def statuses(self) -> AsyncGenerator[Datagram, None]:
        """What parties tell about themselves, from now on; the names are hints."""
        self._statuses = StatusQueue(MOST_WAITING)
        if self._client is not None:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._client.subscribe(self._topics.all_statuses())
        while True:
            yield await self._statuses.get()

    async def publish_notice(self, notice: bytes) -> None:
        """Hand something out to all that listen; at most once, kept by nobody."""
        await self._publish(self._topics.notice(), notice)

    async def notices(self) -> AsyncGenerator[bytes, None]:
        """What is handed out to all, from now on; who wrote it is not known."""
        self._notices = asyncio.Queue(1)
        if self._client is not None:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._client.subscribe(self._topics.notice())
        while True:
            yield await self._notices.get()

    async def _publish(self, topic: str, payload: bytes, qos: int = 0) -> None:
        """Hand over to a task of our own, which ends with the connection; aiomqtt's publish alone would not.

        A few are under way at a time, so that the connection never waits for the next datagram to be packed.
        """
        await self._slots.acquire()
        client = self._client
        if client is None or not self._fits(client, topic, payload):
            self._slots.release()
            return
        task = asyncio.create_task(client.publish(topic, payload, qos=qos, timeout=TIMEOUT_S))
        self._publishing.add(task)
        task.add_done_callback(self._published)

    def _fits(self, client: BrokerClient, topic: str, payload: bytes) -> bool:
        """A broker throws off who publishes more than it takes, so that is not published."""
        most = min(client.largest_packet or LARGEST_ACCEPTED, LARGEST_ACCEPTED)
        size = len(payload) + len(topic) + PACKET_HEAD
        if size > most:
            self.foreign.refuse(
                "publication", "", f"its {size} bytes exceed the largest packet of {most} bytes"
            )
        return size <= most

    def _published(self, task: asyncio.Task[None]) -> None:
        self._publishing.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            left_out = self._failures.admit("publication", type(error).__name__)
            if left_out is not None:
                _logger.info("%s could not publish (%d times): %s", self._address, left_out + 1, error)

    async def _stop(self) -> None:
        for task in (self._task, *self._publishing):
            if task is not None:
                task.cancel()
        if self._task is not None:
            await end_task(self._task, DISCONNECT_S)

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s, short_lived = FIRST_PAUSE_S, 0
        while True:
            connected_at, taken_over = None, False
            try:
                async with self._new_client() as client:
                    connected_at = loop.time()
                    await self._subscribe(client)
                    await self._announce(client)
                    await self._read(client)
            except aiomqtt.MqttError as error:
                self._last_trouble = _trouble(error)
                _logger.info("connection of %s to %s: %s", self._address, self._broker, self._last_trouble)
                self._raise_if_told_to_end()
                if connected_at is None:
                    self._raise_if_final(error)
                taken_over = code_of(error) == SESSION_TAKEN_OVER
            finally:
                self._client = None
                for task in self._publishing:
                    task.cancel()
            await self._tell_interruption()
            if connected_at is not None:
                lasted = loop.time() - connected_at >= LASTING_S and not taken_over
                pause_s, short_lived = (FIRST_PAUSE_S, 0) if lasted else (pause_s, short_lived + 1)
                if taken_over or short_lived == MOST_SHORT_LIVED:
                    _logger.warning(self._why_connections_break(taken_over))
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads reconnections
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _raise_if_told_to_end(self) -> None:
        """A disconnection that fails while we are cancelled hides the cancellation: it still counts."""
        if self._task is not None and self._task.cancelling():
            raise asyncio.CancelledError

    def _why_connections_break(self, taken_over: bool) -> str:
        if taken_over:
            return (
                f"another process connected to {self._broker} as {self._address} and took our place; we come back: "
                "stop one of the two, or have the login revoked if the other is not yours"
            )
        return (
            f"{self._broker} closed {MOST_SHORT_LIVED} connections in a row soon after accepting them; we come back: "
            f"another process may be running as {self._address}, or our datagrams exceed its packet limit"
        )

    def _new_client(self) -> BrokerClient:
        return new_client(
            self._broker,
            self._protocol,
            self._topics.login(self._address),
            None if self._watches_only else self._topics.gone(self._address),
            tls=self._tls,
            answer_within_s=self._answer_within_s,
            logger=_library_logger,
            foreign=self.foreign,
        )

    async def _subscribe(self, client: BrokerClient) -> None:
        wanted = [self._topics.all_datagrams(self._address), self._topics.all_gone()]
        if self._watches_only:
            wanted = []
        if self._statuses is not None:
            wanted.append(self._topics.all_statuses())
        if self._notices is not None:
            wanted.append(self._topics.notice())
        for topic in wanted:
            await client.require_subscribed(topic, self._broker, self._address)

    async def _announce(self, client: BrokerClient) -> None:
        self._client = client
        if self._ever_connected.is_set() and not self._watches_only:
            self._told_trouble = ""
            await self._events.put(Reconnected())
        self._ever_connected.set()

    async def _tell_interruption(self) -> None:
        """Whoever was connected hears why it is no more, and what newly keeps it from coming back."""
        trouble = f"{self._broker}: {self._last_trouble}"
        if self._ever_connected.is_set() and not self._watches_only and trouble != self._told_trouble:
            self._told_trouble = trouble
            await self._events.put(Interrupted(trouble))

    async def _read(self, client: BrokerClient) -> None:
        async for message in client.messages:
            payload, topic = message.payload, message.topic.value
            if message.retain or not isinstance(payload, bytes) or len(payload) > LARGEST_ACCEPTED:
                self.foreign.refuse("packet", "", f"retained or too large, under {topic[:LONGEST_TOPIC]!r}")
            elif (sender := self._topics.sender_of(topic, self._address)) is not None:
                await self._events.put(Datagram(sender, payload))
            elif (party := self._topics.party_of_gone(topic)) is not None:
                if party != self._address:
                    await self._events.put(GoneHint(party))
            elif self._statuses is not None and (party := self._topics.party_of_status(topic)) is not None:
                self._statuses.offer(Datagram(party, payload))
            elif self._notices is not None and topic == self._topics.notice():
                if not self._notices.full():
                    self._notices.put_nowait(payload)
            elif self._topics.party_of_status(topic) is None:
                self.foreign.refuse("packet", "", f"topic {topic[:LONGEST_TOPIC]!r} is none of ours")

    def _raise_if_final(self, error: aiomqtt.MqttError) -> None:
        """Turn a refusal to connect that cannot be cured by trying again into its typed error."""
        reason, value = reason_of(error), code_of(error)
        if is_wrong_certificate(error.__context__):
            raise BrokerRefused(str(self._broker), f"TLS: {error}") from error
        if value in FINAL_REFUSALS:
            raise BrokerRefused(str(self._broker), str(reason)) from error
        if value == WRONG_VERSION and self._broker.version != "auto":
            raise BrokerRefused(
                str(self._broker), f"it does not speak MQTT {self._broker.version}"
            ) from error
        if self._broker.version == "auto" and not self._ever_connected.is_set():
            self._try_the_other_version(error)

    def _try_the_other_version(self, error: aiomqtt.MqttError) -> None:
        """A broker that took our connection and then hung up or kept silent may not speak this version."""
        never_met = isinstance(error.__context__, OSError) and not isinstance(error.__context__, TimeoutError)
        if not never_met:
            self._protocol = V5 if self._protocol is V311 else V311
            self._answer_within_s = TIMEOUT_S


def _trouble(error: aiomqtt.MqttError) -> str:
    """What became of a connection, in the broker's words if it gave any."""
    given = reason_of(error)
    if given is not None and given.value != UNSPECIFIED:
        return str(given)
    return str(error) if error.__cause__ is None and str(error) else "the connection broke"
