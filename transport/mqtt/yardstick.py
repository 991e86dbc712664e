"""What MQTT alone does with a payload: the figure that `veilsum bench mqtt` compares framing with.

Implements specs/transport.md, section 10.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import aiomqtt

from veilsum.transport.limits import MIB
from veilsum.transport.mqtt.link import TIMEOUT_S

if TYPE_CHECKING:
    from veilsum.transport.mqtt.broker_address import BrokerAddress


async def raw_publish(broker: BrokerAddress, payload: bytes, chunk_size: int = MIB, window: int = 4) -> float:
    """Seconds until a bare subscriber holds what a bare QoS 1 publisher sent."""
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
