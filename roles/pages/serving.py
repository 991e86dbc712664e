"""Serves a live page on the loopback until it is told to end, with a deadline for whatever a client may do or not do.

a connection that sends no request     is ended after REQUEST_WITHIN_S
an answer                              ends its connection: whoever is to be answered again asks within the same time
a client that takes nothing in         is ended when what waits for it did not shrink for READ_WITHIN_S
of more connections than MOST_CONNECTIONS the oldest is ended that has not asked yet; where all have asked, the newest
Ctrl-C                                 ends all streams, and what is left after END_WITHIN_S
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.signals import stopping_in_order

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 64
_AT_ONCE = 32
"""So many connections are taken in before those that are too many are ended, so that descriptors stay few."""
REQUEST_WITHIN_S = 10.0
READ_WITHIN_S = 20.0
END_WITHIN_S = 3


class PatientProtocol(H11Protocol):
    """HTTP with deadlines for clients that say nothing or read nothing."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread = 0
        self._since = self.loop.time()
        self._look = self.loop.call_later(REQUEST_WITHIN_S, self._require_request)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        """Whoever only connects loses its place to who comes later and asks; who has asked keeps it."""
        known = [one for one in self.connections if isinstance(one, PatientProtocol)]
        oldest = min((one for one in known if one.cycle is None), key=lambda one: one._since)
        self.connections.discard(oldest)
        oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def _require_request(self) -> None:
        if getattr(self, "cycle", None) is None:
            self.transport.abort()
        else:
            self._require_reader()

    def _require_reader(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting and waiting >= self._unread > 0:
            self.transport.abort()
            return
        self._unread = waiting
        self._look = self.loop.call_later(READ_WITHIN_S, self._require_reader)


class QuietServer(uvicorn.Server):
    """A server that leaves signals to who started it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def open_port(port: int) -> socket.socket:
    """A socket on the loopback; 0 is any free port."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen(_AT_ONCE)
    except (OSError, OverflowError) as error:
        listening.close()
        why = error.strerror if isinstance(error, OSError) else "a port is a number from 0 to 65535"
        raise ParameterError([f"--port {port}: {why}; name another, or none for a free one"]) from error
    return listening


def make_server(app: Starlette) -> QuietServer:
    """A server with all the limits of this file; it ends when its `should_exit` is set."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("Connection", "close")],
        proxy_headers=False,
        backlog=_AT_ONCE,
        timeout_graceful_shutdown=END_WITHIN_S,
    )
    return QuietServer(config)


async def serve(
    app: Starlette, listening: socket.socket, *, on_ready: Callable[[], None], on_end: Callable[[], None]
) -> None:
    """Until a signal, which `on_end` hears first, so that streams end by themselves."""
    server = make_server(app)

    def end() -> None:
        on_end()
        server.should_exit = True

    with stopping_in_order(end):
        on_ready()
        await server.serve(sockets=[listening])
