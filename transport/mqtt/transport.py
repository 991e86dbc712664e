"""The reliable transport over a broker: framing on top of an MQTT link."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.mqtt.link import MqttLink
from veilsum.transport.mqtt.topics import Topics, require_name
from veilsum.transport.reliable import FramedTransport

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Datagram, OpenChunk, SealChunk
    from veilsum.transport.limits import Limits
    from veilsum.transport.mqtt.broker_address import BrokerAddress


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
