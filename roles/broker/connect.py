"""How a party reaches the broker of its federation: the default transport of a role process.

Role processes and the monitor are given what these functions make. With the rest of this room and the published
settings of the broker they are all that names MQTT outside `transport/mqtt/`, but for what measures it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.broker.logins import OBSERVER, PASSWORD_FILE, is_observer, read_login, read_password
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.transport.base import ConnectionRequest, RoleTransport, TransportFactory
from veilsum.transport.errors import BadSetting
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
        username=Topics(loaded.federation_id).login(name),
        password=read_password(key_folder),
        tls=Tls(ca) if config.broker_tls else None,
        version=cast("MqttVersion", config.mqtt_version),
    )


def transport_over_broker(loaded: LoadedFederation, name: str, key_folder: Path) -> TransportFactory:
    """What opens the MQTT transport of a party; its login, and whom it trusts as the broker, are read at once."""
    address = broker_address(loaded, name, key_folder)
    if address.tls is not None:
        try:
            address.tls.context()
        except BadSetting as refusal:
            raise ParameterError(
                [f"{refusal}: get {loaded.config.broker_ca} from the organiser"]
            ) from refusal

    def open_transport(request: ConnectionRequest) -> RoleTransport:
        return MqttTransport(address, request)

    return open_transport


def observers_link(loaded: LoadedFederation, key_folder: Path) -> MqttLink:
    """A link that hears statuses with the login of an observer."""
    name, _ = read_login(key_folder)
    if not is_observer(name):
        raise LocalProtocolError(
            f"{key_folder} holds the login of {name}, which would lose its connection: name a folder of an observer"
        )
    broker, topics = broker_address(loaded, name, key_folder), Topics(loaded.federation_id)
    return MqttLink(broker, topics, name, LISTEN_WITHIN_S, watches_only=True)


@contextmanager
def observers_folder(loaded: LoadedFederation, chosen: Path | None = None) -> Iterator[Path]:
    """The login folder of an observer, the given one or the first that nobody on this machine uses; ours meanwhile.

    A login connects once at a time: a second observer under the same one would push the first off.
    """
    folders = [chosen] if chosen else sorted(loaded.key_folder(OBSERVER).parent.glob(f"{OBSERVER}*"))
    for folder in folders:
        with _open_password(folder) as file:
            if _taken(file):
                yield folder
                return
    if not folders:
        where = loaded.key_folder(OBSERVER).parent
        raise ParameterError(
            [
                f"{where} holds no login of an observer: get a folder {OBSERVER}-... from the organiser (veilsum "
                "roster observer), and name it with --key"
            ]
        )
    raise LocalProtocolError(
        f"{', '.join(folder.name for folder in folders)}: in use by other processes of this machine; wait for one, or "
        "ask the organiser for another login: veilsum roster observer"
    )


def _open_password(folder: Path) -> IO[bytes]:
    path = folder / PASSWORD_FILE
    try:
        return path.open("rb")
    except OSError as error:
        raise ParameterError(
            [f"{path} cannot be read ({error.strerror}): name the folder of an observer with --key"]
        ) from error


def _taken(file: IO[bytes]) -> bool:
    """Whether the lock of a file is ours now; it ends with the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
