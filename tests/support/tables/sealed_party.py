"""Parties with pairwise AES-GCM keys, as roles seal their chunks, for tests of transports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilsum.transport.base import Buffer, OpenChunk, SealChunk
from veilsum.transport.limits import Limits
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.transport import MqttTransport

FEDERATION = "a federation of tests"


def seals(me: str, secret: str = "known to the parties only") -> tuple[SealChunk, OpenChunk]:
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
    limits: Limits | None = None,
    on_gone: Callable[[str], None] | None = None,
    connect_within_s: float = 20.0,
) -> MqttTransport:
    return MqttTransport(
        broker,
        federation,
        name,
        *seals(name),
        limits=limits,
        on_gone=on_gone,
        connect_within_s=connect_within_s,
    )
