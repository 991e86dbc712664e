"""Parties with identities and lines as role processes have them, for tests of transports."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.process.channels import IdentityLines
from veilsum.transport.base import ConnectionRequest
from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.limits import Limits
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.transport import MqttTransport

FEDERATION = "a federation of tests"
SECRET = "known to the parties only"
NAMES = ("alice", "bob", "carol", *"abc")


def identity_of(name: str, secret: str = SECRET) -> Identity:
    """The identity of a name, the same in every process that knows the secret."""
    private = Secret(hashlib.sha256(f"{secret}|{name}".encode()).digest())
    return Identity(PartyId(name), Role.CLIENT, SigningKey.from_private(private))


def lines_of(me: str, secret: str = SECRET, federation: str = FEDERATION) -> IdentityLines:
    """What the party of this name is handed; all that it does not know by the same secret are strangers to it."""
    roster = Roster(1, tuple(identity_of(name, secret).public for name in NAMES))
    return IdentityLines(identity_of(me, secret), roster, federation, secrets.token_bytes)


def mqtt_party(
    broker: BrokerAddress,
    name: str,
    *,
    federation: str = FEDERATION,
    secret: str = SECRET,
    limits: Limits | None = None,
    on_gone: Callable[[str], None] = lambda _: None,
    connect_within_s: float = 20.0,
) -> MqttTransport:
    request = ConnectionRequest(
        federation=federation,
        address=name,
        life=secrets.token_bytes(LIFE_BYTES),
        crypto=lines_of(name, secret, federation),
        on_gone=on_gone,
        connect_within_s=connect_within_s,
    )
    return MqttTransport(broker, request, limits)
