"""A mosquitto without TLS or logins on a free loopback port, for measurements only."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker.mosquitto import find_mosquitto
from veilsum.roles.broker.ports import free_port

_START_S = 10.0
_CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
max_packet_size 4194304
set_tcp_nodelay true
log_type error
"""


@contextlib.contextmanager
def plain_broker() -> Iterator[tuple[str, int]]:
    """The address of a broker that lives as long as the context."""
    program = find_mosquitto()
    if program is None:
        raise LocalProtocolError("this benchmark needs mosquitto: apt-get install mosquitto")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="veilsum-bench-") as folder:
        configuration = Path(folder) / "mosquitto.conf"
        configuration.write_text(_CONFIGURATION.format(port=port), encoding="utf-8")
        process = subprocess.Popen([program, "-c", str(configuration)])  # noqa: S603 - found on the path
        try:
            _wait_until_listening(port)
            yield "127.0.0.1", port
        finally:
            process.terminate()
            process.wait(_START_S)


def _wait_until_listening(port: int) -> None:
    give_up_at = time.monotonic() + _START_S
    while time.monotonic() < give_up_at:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        time.sleep(0.05)
    raise LocalProtocolError(f"mosquitto did not start within {_START_S:g} s")
