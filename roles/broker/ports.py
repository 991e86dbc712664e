"""Ports of this machine: one that a broker can listen on, and whether something listens on one already."""

from __future__ import annotations

import contextlib
import socket

from veilsum.protocol.errors import LocalProtocolError

_LOOPBACK = "127.0.0.1"
_ANY = 0


def free_port(usual: int = _ANY) -> int:
    """The usual port or, while something else on this machine listens there, one that is free now."""
    for port in (usual, _ANY):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((_LOOPBACK, port))
            return int(probe.getsockname()[1])
    return usual


def require_free_port(port: int) -> None:
    """Refuse a port that something listens on already, before a broker fails on it with less to say."""
    with contextlib.suppress(OSError):
        socket.create_connection((_LOOPBACK, port), timeout=1.0).close()
        raise LocalProtocolError(
            f"port {port} is in use on this machine: stop the other broker, or change [broker] port in "
            "federation.toml and run veilsum broker DIR --configure"
        )
