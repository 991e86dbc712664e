"""What stands around a server on the machine that hosts a federation: its broker, and the roster for who joins.

The broker is a process of its own. A thread with a link of its own hands the signed roster out, read anew from its
file each time, so that what the organiser signs meanwhile reaches who waits for it; and when the broker's logins
changed, the broker is told to read them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.broker.files import ACCESS_LIST
from veilsum.roles.broker.notices import publish_notices
from veilsum.roles.federation.admission import NOTICES_FOLDER
from veilsum.roles.federation.folder import BROKER_FOLDER, LoadedFederation
from veilsum.roles.federation.signed_roster import ROSTER_FILE
from veilsum.transport.errors import TransportError

STOP_WITHIN_S = 10.0
_FORGETFUL = "embedded"
"""In the first words of a broker that reads its files at every use, and knows no SIGHUP."""

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def hosting(loaded: LoadedFederation, *, embedded: bool = False) -> Iterator[None]:
    """A broker and the roster on it, for as long as the block lasts."""
    login = loaded.folder / BROKER_FOLDER / NOTICES_FOLDER
    if not login.is_dir():
        raise ParameterError(
            [f"{login} does not exist: veilsum invite {loaded.folder} makes it, or copy it here"]
        )
    words = ["broker", str(loaded.folder), *(["--embedded"] if embedded else [])]
    broker = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-P", "-m", "veilsum", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said = broker.stdout.readline().strip() if broker.stdout is not None else ""
        if not said:
            raise LocalProtocolError(
                f"the broker did not start: it ended with code {broker.wait(STOP_WITHIN_S)}"
            )
        sys.stderr.write(f"broker: {said}\n")
        with _Handing(loaded, login, None if _FORGETFUL in said else broker):
            yield
    finally:
        broker.terminate()
        try:
            broker.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()
        if broker.stdout is not None:
            broker.stdout.close()


class _Handing:
    """The thread that hands the roster out."""

    def __init__(self, loaded: LoadedFederation, login: Path, broker: subprocess.Popen[str] | None) -> None:
        self._loaded = loaded
        self._login = login
        self._broker = broker
        self._read_at = self._changed_at()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._hand_out, name="hands the roster out", daemon=True)

    def __enter__(self) -> None:
        self._task = self._loop.create_task(publish_notices(self._loaded, self._login, self._content))
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(STOP_WITHIN_S)

    def _hand_out(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        except (TransportError, OSError) as error:
            _logger.warning("the roster is not handed out any more: %s; send roster.json to who joins", error)
        finally:
            self._loop.close()

    def _content(self) -> bytes:
        if self._broker is not None and self._changed_at() != self._read_at:
            self._read_at = self._changed_at()
            self._broker.send_signal(signal.SIGHUP)
        return (self._loaded.folder / ROSTER_FILE).read_bytes()

    def _changed_at(self) -> int:
        return (self._loaded.folder / BROKER_FOLDER / ACCESS_LIST).stat().st_mtime_ns
