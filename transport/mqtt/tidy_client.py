"""aiomqtt's client with its sockets in one thread, and nothing left of a connection that has ended.

The library connects in a thread of its own, from which it also hands the socket to the event loop, by number. Where a
connection breaks in that moment, the number is closed, or another file's, by the time the loop takes it; and a future
that nobody waits for any more gets an exception. Neither does harm, and both end in tracebacks. So here the thread
connects and does nothing else: the loop takes the socket over when that is done, and drops it together with
everything that belongs to it.

An attempt that was given up is closed at once, not when its keepalive has passed: a broker that was stuck and goes on
would let it in, and throw off the connection that came after it.

Implements specs/transport.md, section 9.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable
from typing import Any, Self

import aiomqtt
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

HUNG_UP = "the broker hung up before it let us in"


class TidyClient(aiomqtt.Client):
    """A client for one connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._loop_thread = threading.get_ident()
        self._connecting = False
        self._left = False

    async def __aenter__(self) -> Self:
        self._connecting = True
        try:
            return await super().__aenter__()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *exc_info: Any) -> None:
        try:
            await super().__aexit__(*exc_info)
        finally:
            self._leave()

    # In the thread that connects.

    def _client_connect(self) -> None:
        try:
            super()._client_connect()
        finally:
            with contextlib.suppress(
                RuntimeError
            ):  # the loop has ended, and with it whoever wanted the connection
                self._loop.call_soon_threadsafe(self._take_over)

    # In the thread of the loop.

    @property
    def _in_loop(self) -> bool:
        return threading.get_ident() == self._loop_thread

    def _take_over(self) -> None:
        self._connecting = False
        sock = self._client.socket()
        if self._left:
            self._leave()
        elif sock is None:
            self._break(aiomqtt.MqttError(HUNG_UP))
        else:
            self._loop.add_reader(sock.fileno(), self._guarded, self._read)
            if self._client.want_write():
                self._loop.add_writer(sock.fileno(), self._guarded, self._client.loop_write)
            self._misc_task = self._loop.create_task(self._misc_loop())

    def _read(self) -> None:
        """All that is there, also what the TLS layer has decoded already and the socket does not tell of."""
        while True:
            self._client.loop_read()
            sock = self._client.socket()
            if not isinstance(sock, ssl.SSLSocket) or not sock.pending():
                return

    def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is broken
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Tell whoever waits for the connection, or for its end."""
        failure = error if isinstance(error, aiomqtt.MqttError) else aiomqtt.MqttError(str(error))
        for future in (self._connected, self._disconnected):
            if not future.done():
                future.set_exception(failure)
                return

    async def _misc_loop(self) -> None:
        try:
            await super()._misc_loop()
        except Exception as error:  # noqa: BLE001 - as in _guarded
            self._break(error)

    def _leave(self) -> None:
        """Close what is open, and look at what nobody waits for."""
        self._left = True
        if not self._connecting:
            self._client._sock_close()
        for future in (self._connected, self._disconnected):
            if future.done() and not future.cancelled():
                future.exception()

    # What paho calls, in either thread.

    def _on_socket_open(self, client: Any, userdata: Any, sock: Any) -> None:
        """The loop takes it over when it is connected."""

    def _on_socket_close(self, client: Any, userdata: Any, sock: Any) -> None:
        if self._in_loop and sock.fileno() >= 0:
            self._loop.remove_reader(sock.fileno())
        if self._in_loop and self._misc_task is not None:
            self._misc_task.cancel()

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        if self._in_loop and sock.fileno() >= 0:
            self._loop.add_writer(sock.fileno(), self._guarded, self._client.loop_write)

    def _on_socket_unregister_write(self, client: Any, userdata: Any, sock: Any) -> None:
        if self._in_loop and sock.fileno() >= 0:
            self._loop.remove_writer(sock.fileno())

    def _on_disconnect(
        self,
        client: Any,
        userdata: Any,
        flags: Any,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        """A broker can hang up before it lets us in; where that is found in the thread, `_take_over` tells it."""
        if not self._in_loop or self._connected.cancelled():
            return
        if not self._connected.done():
            self._break(aiomqtt.MqttError(HUNG_UP))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)
