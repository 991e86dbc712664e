"""One connection to a broker: aiomqtt's client, with what it does not tell us and what its refusals mean.

Implements specs/transport.md, sections 8 and 9.
"""

from __future__ import annotations

import logging
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from veilsum.transport.errors import BrokerRefused
from veilsum.transport.fair_queue import FairQueue
from veilsum.transport.foreign import RateLimit
from veilsum.transport.limits import MIB
from veilsum.transport.mqtt.tidy_client import TidyClient
from veilsum.transport.mqtt.topics import party_in
from veilsum.transport.printable import printable

if TYPE_CHECKING:
    from veilsum.transport.base import Address
    from veilsum.transport.foreign import ForeignReader
    from veilsum.transport.mqtt.broker_address import BrokerAddress

KEEPALIVE_S = 20
LARGEST_ACCEPTED = 2 * MIB
"""Datagrams beyond this were not made by our framing and are ignored."""
MOST_QUEUED = 1024
MOST_OF_ONE = 256
MOST_BYTES_OF_ONE = 64 * MIB
"""So much of one sender waits in the queue of all: four windows, and many small datagrams."""

SESSION_TAKEN_OVER = 142
UNSPECIFIED = 128
"""What the library gives as the reason of a connection that broke without one."""
WRONG_VERSION = 132
NOT_GRANTED = 128
"""SUBACK reasons from here on refuse a subscription."""
FINAL_REFUSALS = {133, 134, 135, 138, 140}
"""CONNACK reasons that trying again does not change: identifier, password, authorisation, ban, method."""
CERTIFICATE_ALERTS = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
)
"""What a broker answers to a certificate of ours that it does not take, behind the version of TLS (RFC 8446, 6.2)."""

Protocol: TypeAlias = aiomqtt.ProtocolVersion
V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


TOLD_BY_THE_LINK = "failed to receive on socket: %s"
"""What the library says of a connection that broke; the link tells of it, and for how long it was gone."""


class _Sparingly(logging.Filter):
    """Lets through what the library tells at a bounded rate, without tracebacks: a broker decides how often it does."""

    def __init__(self, limit: RateLimit) -> None:
        super().__init__()
        self._limit = limit

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        if record.msg == TOLD_BY_THE_LINK:
            return False
        left_out = self._limit.admit(record.levelname, (record.pathname, record.lineno))
        if left_out is None:
            return False
        more = f" (and {left_out} more since the last line)" if left_out else ""
        record.msg, record.args = printable(record.getMessage() + more), ()
        record.exc_info = None
        return True


def library_logger(name: str, limit: RateLimit) -> logging.Logger:
    """A logger for the library, whose lines are bounded."""
    logger = logging.getLogger(name)
    logger.filters = [_Sparingly(limit)]
    return logger


class PacketQueue(FairQueue[aiomqtt.Message]):
    """Packets that wait for us, with places for each party that their topics name."""

    places_of_one = MOST_OF_ONE
    bytes_of_one = MOST_BYTES_OF_ONE

    def sender_of(self, item: aiomqtt.Message) -> str:
        return party_in(item.topic.value)

    def size_of(self, item: aiomqtt.Message) -> int:
        return len(item.payload) if isinstance(item.payload, bytes) else 0


class BrokerClient(TidyClient):
    """A client that keeps what the broker says when it lets us in."""

    largest_packet: int | None = None
    foreign: ForeignReader

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        """A topic that is no text, or no topic, is the broker's or its sender's defect, and no reason to reconnect."""
        self.foreign.read("packet", "", partial(self._take_in, message))

    def _take_in(self, message: Any) -> None:
        assert isinstance(self._queue, PacketQueue)
        for lost in self._queue.offer(aiomqtt.Message._from_paho_message(message)):
            self.foreign.refuse("packet", self._queue.sender_of(lost), "too many are waiting already")

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

    async def require_subscribed(self, topic: str, broker: BrokerAddress, address: Address) -> None:
        """Subscribe; raises if the broker does not let `address` read the topic."""
        (granted,) = await self.subscribe(topic)
        if (granted.value if isinstance(granted, ReasonCode) else granted) >= NOT_GRANTED:
            raise BrokerRefused(str(broker), f"{address} may not subscribe to {topic}")


def new_client(
    broker: BrokerAddress,
    protocol: Protocol,
    identifier: str,
    gone_topic: str | None,
    *,
    tls: ssl.SSLContext | None,
    answer_within_s: float,
    logger: logging.Logger,
    foreign: ForeignReader,
) -> BrokerClient:
    """A client that is not connected yet; the broker publishes `lost` under `gone_topic`, if any, when it loses us."""
    speaks_5 = protocol is V5
    client = BrokerClient(
        broker.host,
        broker.port,
        username=broker.username,
        password=broker.password,
        identifier=identifier,
        protocol=protocol,
        clean_session=None if speaks_5 else True,
        clean_start=True if speaks_5 else MQTT_CLEAN_START_FIRST_ONLY,
        properties=_largest_packet_for_us() if speaks_5 else None,
        will=None if gone_topic is None else aiomqtt.Will(gone_topic, b"lost", qos=1),
        tls_context=tls,
        timeout=answer_within_s,
        keepalive=KEEPALIVE_S,
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        logger=logger,
        max_queued_incoming_messages=MOST_QUEUED,
        queue_type=PacketQueue,
    )
    client.foreign = foreign
    return client


def reason_of(error: aiomqtt.MqttError) -> ReasonCode | None:
    """What the broker gave as its reason, if it gave one."""
    cause = error if isinstance(error, aiomqtt.MqttCodeError) else error.__cause__
    reason = getattr(cause, "rc", None)
    return reason if isinstance(reason, ReasonCode) else None


def code_of(error: aiomqtt.MqttError) -> int | None:
    """The number of that reason."""
    reason = reason_of(error)
    return None if reason is None else reason.value


def is_wrong_certificate(error: BaseException | None) -> bool:
    """Whether a handshake failed over a certificate, the broker's or ours; all else may go well the next time."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return isinstance(error, ssl.SSLError) and (error.reason or "").endswith(CERTIFICATE_ALERTS)


def _largest_packet_for_us() -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # untyped in paho
    properties.MaximumPacketSize = LARGEST_ACCEPTED
    return properties
