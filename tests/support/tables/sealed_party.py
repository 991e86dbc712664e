"""Parties with pairwise AES-GCM keys, as roles seal their chunks, for tests of transports."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilsum.transport.base import Buffer, ConnectionRequest, OpenChunk, SealChunk
from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.limits import Limits
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.transport import MqttTransport

FEDERATION = "a federation of tests"
SECRET = "known to the parties only"


def seals(me: str, secret: str = SECRET) -> tuple[SealChunk, OpenChunk]:
    """Sealing with one key per direction, derived from a secret; headers never repeat, so nonces do not."""

    def cipher(sender: str, receiver: str) -> AESGCM:
        return AESGCM(hashlib.sha256(f"{secret}|{sender}|{receiver}".encode()).digest())

    def nonce(header: bytes) -> bytes:
        return hashlib.sha256(header).digest()[:12]

    def seal(receiver: str, header: bytes, data: Buffer) -> bytes:
        return cipher(me, receiver).encrypt(nonce(header), bytes(data), header)

    def open_(sender: str, header: bytes, sealed: Buffer) -> bytes | None:
        try:
            return cipher(sender, me).decrypt(nonce(header), bytes(sealed), header)
        except InvalidTag:
            return None

    return seal, open_


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
    seal, open_ = seals(name, secret)
    request = ConnectionRequest(
        federation=federation,
        address=name,
        life=secrets.token_bytes(LIFE_BYTES),
        seal_chunk=seal,
        open_chunk=open_,
        on_gone=on_gone,
        connect_within_s=connect_within_s,
    )
    return MqttTransport(broker, request, limits)
