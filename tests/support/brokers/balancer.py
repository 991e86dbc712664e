"""A load balancer: a TCP proxy that accepts for a broker which is not there, and hangs up when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from veilsum.transport.mqtt.broker_address import BrokerAddress, Tls


@dataclass
class Balancer:
    """Passes connections on to a port of this machine, or ends them.

    While `away`, connections are accepted and closed, after `first_bytes` bytes of the client were read; with `reset`
    they end by a reset. `cut` ends what is open.
    """

    to_port: int
    away: bool = False
    first_bytes: int = 0
    reset: bool = False
    accepted: int = 0
    port: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def address(
        self, username: str | None = None, password: str | None = None, tls: Tls | None = None
    ) -> BrokerAddress:
        return BrokerAddress("localhost", self.port, username, password, tls, "5")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Balancer]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        for writer in list(self._open):
            self._end(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._open.add(writer)
        try:
            if self.away:
                if self.first_bytes:
                    await reader.readexactly(self.first_bytes)
                return
            upstream, onward = await asyncio.open_connection("127.0.0.1", self.to_port)
            self._open.add(onward)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass_on(reader, onward))
                tasks.create_task(_pass_on(upstream, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        if self.reset:
            raw = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
