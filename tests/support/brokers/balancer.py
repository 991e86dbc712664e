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
    they end by a reset. `cut` ends what is open. Otherwise each is passed on until the client has sent the next of
    `lengths` bytes, if one is left; while `stuck` they are half-open: nothing is answered, until one side ends it.
    """

    to_port: int
    away: bool = False
    first_bytes: int = 0
    reset: bool = False
    stuck: bool = False
    lengths: list[int] = field(default_factory=list)
    accepted: int = 0
    most_open: int = 0
    port: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def address(
        self, username: str | None = None, password: str | None = None, tls: Tls | None = None
    ) -> BrokerAddress:
        return BrokerAddress("localhost", self.port, username, password, tls, "5")

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[Balancer]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        for writer in list(self._open):
            self._end(writer)

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._open.add(writer)
        self.most_open = max(self.most_open, len(self._open))
        try:
            if self.away:
                if self.first_bytes:
                    await reader.readexactly(self.first_bytes)
                return
            if self.stuck:
                await reader.read()
                return
            left = self.lengths.pop(0) if self.lengths else None
            upstream, onward = await asyncio.open_connection("127.0.0.1", self.to_port)
            self._open.add(onward)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass_on(reader, onward, left))
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


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None = None
) -> None:
    try:
        while data := await reader.read(1 << 16 if left is None else left):
            writer.write(data)
            await writer.drain()
            left = None if left is None else left - len(data)
    finally:
        writer.close()
