"""The reliable transport over a broker: framing on top of an MQTT link."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.limits import Limits
from veilsum.transport.mqtt.link import MqttLink
from veilsum.transport.mqtt.topics import Topics, require_name
from veilsum.transport.reliable import FramedTransport

if TYPE_CHECKING:
    from veilsum.transport.base import ConnectionRequest, Datagram
    from veilsum.transport.mqtt.broker_address import BrokerAddress


class MqttTransport(FramedTransport):
    """Reliable sealed messages of one address over a broker that nobody has to trust."""

    def __init__(
        self, broker: BrokerAddress, request: ConnectionRequest, limits: Limits | None = None
    ) -> None:
        address = require_name(request.address)
        bounded = (limits or Limits()).for_messages(request.largest_message)
        endpoint = Endpoint(address, request.life, bounded, request.crypto)
        self._mqtt = MqttLink(broker, Topics(request.federation), address, request.connect_within_s)
        super().__init__(self._mqtt, endpoint, request.on_gone, request.on_link)

    async def publish_status(self, status: bytes) -> None:
        """Tell everybody who listens how we are; at most once, kept by nobody."""
        await self._mqtt.publish_status(status)

    def statuses(self) -> AsyncGenerator[Datagram, None]:
        """What parties tell about themselves, from now on; the names are hints."""
        return self._mqtt.statuses()
