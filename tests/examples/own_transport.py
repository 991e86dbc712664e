"""A transport of one's own, outside the package: a federation on one machine over Unix sockets, without a broker.

Every party binds a datagram socket called by its name in one folder. A link of four methods is all that framing needs
to make messages reliable; statuses go to every socket that is there. `python own_transport.py ROLE FOLDER NAME
SOCKETS` runs one role of a federation that `veilsum init` has made.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from veilsum.protocol.crypto.identity import Role
from veilsum.roles.process.context import RoleOptions
from veilsum.roles.process.run import run_role
from veilsum.transport.base import ConnectionRequest, Datagram, LinkEvent, TransportFactory
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.limits import Limits
from veilsum.transport.reliable import FramedTransport

LARGEST = 64 * 1024
MESSAGE, STATUS = b"m", b"s"


class SocketLink(asyncio.DatagramProtocol):
    """Datagrams between sockets of one folder; each begins with its kind and the name of its sender."""

    largest_datagram: int | None = LARGEST

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._address = folder, address
        self.events: asyncio.Queue[LinkEvent] = asyncio.Queue()
        self.statuses: asyncio.Queue[Datagram] = asyncio.Queue()
        self._socket: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Self:
        own = self._folder / self._address
        own.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._socket, _ = await loop.create_datagram_endpoint(
            lambda: self, family=socket.AF_UNIX, local_addr=str(own)
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._socket is not None:
            self._socket.close()
        (self._folder / self._address).unlink(missing_ok=True)

    async def send(self, receiver: str, datagram: bytes) -> None:
        self.put(receiver, MESSAGE, datagram)
        await asyncio.sleep(0)

    async def receive(self) -> LinkEvent:
        return await self.events.get()

    def put(self, receiver: str, kind: bytes, data: bytes) -> None:
        """Hand one datagram to the system; who is not there does not get it, and framing notices."""
        assert self._socket is not None
        self._socket.sendto(kind + self._address.encode() + b"\0" + data, str(self._folder / receiver))

    def tell_all(self, status: bytes) -> None:
        for other in self._folder.iterdir():
            self.put(other.name, STATUS, status)

    def datagram_received(self, data: bytes, addr: object) -> None:
        sender, _, content = data[1:].partition(b"\0")
        queue = self.events if data[:1] == MESSAGE else self.statuses
        queue.put_nowait(Datagram(sender.decode(errors="replace"), content))

    def error_received(self, exc: Exception) -> None:
        """A receiver that is not there: what was for it is lost."""


class SocketTransport(FramedTransport):
    """Framing over a socket link, and statuses beside it."""

    def __init__(self, folder: Path, request: ConnectionRequest) -> None:
        self._sockets = SocketLink(folder, request.address)
        limits = Limits().for_messages(request.largest_message)
        endpoint = Endpoint(request.address, request.life, limits, request.crypto)
        super().__init__(self._sockets, endpoint, request.on_gone)

    async def publish_status(self, status: bytes) -> None:
        self._sockets.tell_all(status)

    async def statuses(self) -> AsyncIterator[Datagram]:
        while True:
            yield await self._sockets.statuses.get()


def over_sockets(folder: Path) -> TransportFactory:
    """The factory that a role process is given."""
    return lambda request: SocketTransport(folder, request)


def main(role: str, folder: str, name: str, sockets: str) -> int:
    options = RoleOptions(Path(folder), name, log_format="json")
    return run_role(Role(role), options, over_sockets(Path(sockets)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
