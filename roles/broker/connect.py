"""How a party reaches the broker of its federation: the default transport of a role process.

Role processes and the monitor are given what these functions make. With the rest of this room and the published
settings of the broker they are all that names MQTT outside `transport/mqtt/`, but for what measures it.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from veilsum.roles.broker.files import OBSERVER
from veilsum.roles.broker.logins import read_password
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.transport.base import ConnectionRequest, RoleTransport, TransportFactory
from veilsum.transport.mqtt.broker_address import BrokerAddress, MqttVersion, Tls
from veilsum.transport.mqtt.link import MqttLink
from veilsum.transport.mqtt.topics import Topics
from veilsum.transport.mqtt.transport import MqttTransport

LISTEN_WITHIN_S = 10.0


def broker_address(loaded: LoadedFederation, name: str, key_folder: Path) -> BrokerAddress:
    """Where the broker is, with the password in the key folder of the party called `name`."""
    config = loaded.config
    ca = None if config.broker_ca is None else loaded.folder / config.broker_ca
    return BrokerAddress(
        config.broker_host,
        config.broker_port,
        username=name,
        password=read_password(key_folder),
        tls=Tls(ca) if config.broker_tls else None,
        version=cast("MqttVersion", config.mqtt_version),
    )


def transport_over_broker(loaded: LoadedFederation, key_folder: Path) -> TransportFactory:
    """What opens the MQTT transport of the party whose keys are in the folder."""

    def open_transport(request: ConnectionRequest) -> RoleTransport:
        return MqttTransport(broker_address(loaded, request.address, key_folder), request)

    return open_transport


def observers_link(loaded: LoadedFederation, key_folder: Path | None = None) -> MqttLink:
    """A link that hears statuses with the login of observers."""
    address = broker_address(loaded, OBSERVER, key_folder or loaded.key_folder(OBSERVER))
    return MqttLink(address, Topics(loaded.federation_id), OBSERVER, LISTEN_WITHIN_S)
