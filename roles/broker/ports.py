"""Ports of this machine: one that a broker can listen on, whether something listens on one, and which process does."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError

_LOOPBACK = "127.0.0.1"
_ANY = 0
_LISTENING = "0A"
"""The state of a listening socket in /proc/PID/net/tcp."""


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
    if answers(port):
        raise LocalProtocolError(
            f"port {port} is in use on this machine: stop the other broker, or change [broker] port in "
            "federation.toml and run veilsum broker DIR --configure"
        )


def answers(port: int) -> bool:
    """Whether somebody, whoever it is, accepts connections there."""
    with contextlib.suppress(OSError):
        socket.create_connection((_LOOPBACK, port), timeout=1.0).close()
        return True
    return False


def listens(process: int, port: int) -> bool | None:
    """Whether a process of ours listens on a port; None where the system does not tell (it does on Linux)."""
    folder = Path("/proc", str(process))
    try:
        tables = [folder.joinpath("net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
        opened = list(folder.joinpath("fd").iterdir())
    except OSError:
        return None
    held = set()
    for one in opened:
        with contextlib.suppress(OSError):
            held.add(str(one.readlink()))
    sockets = [line.split() for table in tables for line in table]
    return any(
        f"socket:[{fields[9]}]" in held
        for fields in sockets
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port
    )
