"""Datagrams over MQTT, and the reliable transport on top; the only file that knows aiomqtt.

The link keeps one connection alive: it connects, subscribes, reads, and after any failure backs off with
jitter, connects and subscribes again. It promises nothing about single datagrams, and does not need to:
framing acknowledges end to end. So datagrams travel at QoS 0 in a clean session. Rejected: QoS 1, which
costs the broker a second book-keeping of every chunk and was measured slower, and still loses messages
beyond the broker's queue limits; and persistent sessions, which replay megabytes that framing would have to
throw away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Self

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from veilsum.transport.base import Datagram, GoneHint, LinkEvent, Reconnected
from veilsum.transport.errors import AddressTaken, BrokerRefused, BrokerUnreachable, Closed, TooLarge
from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.limits import KIB, MIB
from veilsum.transport.mqtt.topics import Topics, require_name
from veilsum.transport.reliable import FramedTransport

if TYPE_CHECKING:
    from veilsum.transport.base import Address, OpenChunk, SealChunk
    from veilsum.transport.limits import Limits
    from veilsum.transport.mqtt.broker_address import BrokerAddress

TIMEOUT_S = 10.0
GUESSING_S = 3.0
"""How long a broker whose version we do not know may take to answer the first time; some ignore MQTT 5."""
KEEPALIVE_S = 20
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
LASTING_S = 2.0
MOST_SHORT_LIVED = 5
LARGEST_ACCEPTED = 2 * MIB
"""Datagrams beyond this were not made by our framing and are ignored."""
LARGEST_STATUS = 64 * KIB
MOST_WAITING = 64
LINK_DEPTH = 3
FAREWELL_S = 2.0

_SESSION_TAKEN_OVER = 142
_WRONG_VERSION = 132
_FINAL_REFUSALS = {133, 134, 135, 138, 140}
"""CONNACK reasons that trying again does not change: identifier, password, authorisation, ban, method."""

_V311, _V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5

_logger = logging.getLogger(__name__)


class _Client(aiomqtt.Client):
    """A client that keeps what the broker says when it lets us in, and notices when it hangs up instead."""

    largest_packet: int | None = None

    def _on_connect(
        self,
        client: Any,
        userdata: Any,
        flags: Any,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        self.largest_packet = getattr(properties, "MaximumPacketSize", None)
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self,
        client: Any,
        userdata: Any,
        flags: Any,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("the broker hung up before it let us in"))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)


class MqttLink:
    """An unreliable datagram link of one address over a broker."""

    def __init__(
        self, broker: BrokerAddress, topics: Topics, address: Address, connect_within_s: float = 60.0
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._address = require_name(address)
        self._connect_within_s = connect_within_s
        self._tls = None if broker.tls is None else broker.tls.context()
        self._protocol = _V311 if broker.version == "3.1.1" else _V5
        self._answer_within_s = GUESSING_S if broker.version == "auto" else TIMEOUT_S
        self._client: _Client | None = None
        self._events: asyncio.Queue[LinkEvent | None] = asyncio.Queue(MOST_WAITING)
        self._publishing: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(LINK_DEPTH)
        self._statuses: asyncio.Queue[Datagram] | None = None
        self._connected_before = False
        self._ever_connected = asyncio.Event()
        self._last_trouble = "no attempt was made"
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
        await self._publish(self._topics.gone(self._address), b"closed", qos=1)
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
        self._statuses = asyncio.Queue(MOST_WAITING)
        if self._client is not None:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._client.subscribe(self._topics.all_statuses())
        while True:
            yield await self._statuses.get()

    async def _publish(self, topic: str, payload: bytes, qos: int = 0) -> None:
        """Hand over to a task of our own, which ends with the connection; aiomqtt's publish alone would not.

        A few are under way at a time, so that the connection never waits for the next datagram to be packed.
        """
        await self._slots.acquire()
        client = self._client
        if client is None:
            self._slots.release()
            return
        task = asyncio.create_task(client.publish(topic, payload, qos=qos, timeout=TIMEOUT_S))
        self._publishing.add(task)
        task.add_done_callback(self._published)

    def _published(self, task: asyncio.Task[None]) -> None:
        self._publishing.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.info("%s could not publish: %s", self._address, error)

    async def _stop(self) -> None:
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=FAREWELL_S)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s, short_lived = FIRST_PAUSE_S, 0
        while True:
            connected_at = None
            try:
                async with self._new_client() as client:
                    connected_at = loop.time()
                    await self._subscribe(client)
                    await self._announce(client)
                    await self._read(client)
            except aiomqtt.MqttError as error:
                self._last_trouble = str(error) or "the broker closed the connection"
                _logger.info("connection of %s to %s: %s", self._address, self._broker, self._last_trouble)
                self._raise_if_final(error, connecting=connected_at is None)
            finally:
                self._client = None
                for task in self._publishing:
                    task.cancel()
            if connected_at is not None:
                lasted = loop.time() - connected_at >= LASTING_S
                pause_s, short_lived = (FIRST_PAUSE_S, 0) if lasted else (pause_s, short_lived + 1)
            if short_lived == MOST_SHORT_LIVED:
                raise BrokerRefused(str(self._broker), self._why_connections_break())
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads reconnections
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _why_connections_break(self) -> str:
        return (
            f"it closed {MOST_SHORT_LIVED} connections in a row soon after accepting them: "
            f"another process may be running as {self._address}, or our datagrams exceed its packet limit"
        )

    def _new_client(self) -> _Client:
        speaks_5 = self._protocol is _V5
        return _Client(
            self._broker.host,
            self._broker.port,
            username=self._broker.username,
            password=self._broker.password,
            identifier=f"{self._topics.federation[:16]}-{self._address}",
            protocol=self._protocol,
            clean_session=None if speaks_5 else True,
            clean_start=True if speaks_5 else MQTT_CLEAN_START_FIRST_ONLY,
            properties=_largest_packet_for_us() if speaks_5 else None,
            will=aiomqtt.Will(self._topics.gone(self._address), b"lost", qos=1),
            tls_context=self._tls,
            timeout=self._answer_within_s,
            keepalive=KEEPALIVE_S,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            logger=_logger,
            max_queued_incoming_messages=16 * MOST_WAITING,
        )

    async def _subscribe(self, client: _Client) -> None:
        wanted = [self._topics.all_datagrams(self._address), self._topics.all_gone()]
        if self._statuses is not None:
            wanted.append(self._topics.all_statuses())
        for topic in wanted:
            (granted,) = await client.subscribe(topic)
            value = granted.value if isinstance(granted, ReasonCode) else granted
            if value >= 128:
                raise BrokerRefused(str(self._broker), f"{self._address} may not subscribe to {topic}")

    async def _announce(self, client: _Client) -> None:
        self._client = client
        if self._connected_before:
            await self._events.put(Reconnected())
        self._connected_before = True
        self._ever_connected.set()

    async def _read(self, client: _Client) -> None:
        async for message in client.messages:
            payload = message.payload
            if message.retain or not isinstance(payload, bytes) or len(payload) > LARGEST_ACCEPTED:
                continue
            topic = message.topic.value
            if (sender := self._topics.sender_of(topic, self._address)) is not None:
                await self._events.put(Datagram(sender, payload))
            elif (party := self._topics.party_of_gone(topic)) is not None:
                if party != self._address:
                    await self._events.put(GoneHint(party))
            elif self._statuses is not None and (party := self._topics.party_of_status(topic)) is not None:
                if self._statuses.full():
                    self._statuses.get_nowait()
                self._statuses.put_nowait(Datagram(party, payload))

    def _raise_if_final(self, error: aiomqtt.MqttError, connecting: bool) -> None:
        """Turn what cannot be cured by trying again into its typed error."""
        cause = error if isinstance(error, aiomqtt.MqttCodeError) else error.__cause__
        reason = getattr(cause, "rc", None)
        value = reason.value if isinstance(reason, ReasonCode) else None
        if value == _SESSION_TAKEN_OVER:
            raise AddressTaken(self._address) from error
        if not connecting:
            return
        if isinstance(error.__context__, ssl.SSLError):
            raise BrokerRefused(str(self._broker), f"TLS: {error}") from error
        if value in _FINAL_REFUSALS:
            raise BrokerRefused(str(self._broker), str(reason)) from error
        if value == _WRONG_VERSION and self._broker.version != "auto":
            raise BrokerRefused(
                str(self._broker), f"it does not speak MQTT {self._broker.version}"
            ) from error
        if self._broker.version == "auto" and not self._connected_before:
            self._try_the_other_version(error)

    def _try_the_other_version(self, error: aiomqtt.MqttError) -> None:
        """A broker that took our connection and then hung up or kept silent may not speak this version."""
        never_met = isinstance(error.__context__, OSError) and not isinstance(error.__context__, TimeoutError)
        if not never_met:
            self._protocol = _V5 if self._protocol is _V311 else _V311
            self._answer_within_s = TIMEOUT_S


class MqttTransport(FramedTransport):
    """Reliable sealed messages of one address over a broker that nobody has to trust.

    `life` is a fresh nonce of eight bytes; `on_gone` is told when the broker believes that a party has gone.
    """

    def __init__(
        self,
        broker: BrokerAddress,
        federation: str | bytes,
        address: Address,
        seal_chunk: SealChunk,
        open_chunk: OpenChunk,
        *,
        life: bytes | None = None,
        limits: Limits | None = None,
        on_gone: Callable[[Address], None] | None = None,
        connect_within_s: float = 60.0,
    ) -> None:
        life = life or secrets.token_bytes(LIFE_BYTES)
        endpoint = Endpoint(require_name(address), life, limits, seal_chunk, open_chunk)
        self._mqtt = MqttLink(broker, Topics(federation), address, connect_within_s)
        super().__init__(self._mqtt, endpoint, on_gone)

    async def publish_status(self, status: bytes) -> None:
        """Tell everybody who listens how we are; at most once, kept by nobody."""
        await self._mqtt.publish_status(status)

    def statuses(self) -> AsyncGenerator[Datagram, None]:
        """What parties tell about themselves, from now on; the names are hints."""
        return self._mqtt.statuses()


async def raw_publish(broker: BrokerAddress, payload: bytes, chunk_size: int = MIB, window: int = 4) -> float:
    """The yardstick of the benchmark: seconds until a bare subscriber holds what a bare QoS 1 publisher sent."""
    topic = f"veilsum-raw/{secrets.token_hex(8)}"
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(window)

    def client() -> aiomqtt.Client:
        return aiomqtt.Client(broker.host, broker.port, username=broker.username, password=broker.password)

    async with client() as subscriber, client() as publisher:

        async def collect() -> float:
            parts: list[bytes] = []
            missing = len(payload)
            async for message in subscriber.messages:
                parts.append(message.payload)
                missing -= len(message.payload)
                if missing <= 0:
                    break
            b"".join(parts)
            return loop.time()

        async def publish(start: int) -> None:
            async with slots:
                await publisher.publish(topic, payload[start : start + chunk_size], qos=1)

        await subscriber.subscribe(topic, qos=1)
        started = loop.time()
        async with asyncio.timeout(TIMEOUT_S + len(payload) / MIB), asyncio.TaskGroup() as tasks:
            collected = tasks.create_task(collect())
            for start in range(0, len(payload), chunk_size):
                tasks.create_task(publish(start))
        return collected.result() - started


def _largest_packet_for_us() -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # untyped in paho
    properties.MaximumPacketSize = LARGEST_ACCEPTED
    return properties
