"""What stands around a server on the machine that hosts a federation: its broker, and the roster for who joins.

The broker is a process of its own, which ends with us however we end, and is started again if it ends alone. A thread
with a link of its own hands the signed roster out, read anew from its file each time, so that what the organiser signs
meanwhile reaches who waits for it; and when the broker's logins changed, the broker is told to read them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.broker.files import ACCESS_LIST
from veilsum.roles.broker.notices import publish_notices
from veilsum.roles.federation.admission import NOTICES_FOLDER
from veilsum.roles.federation.folder import BROKER_FOLDER, LoadedFederation
from veilsum.roles.federation.signed_roster import ROSTER_FILE
from veilsum.roles.launch.lifeline import die_with_parent
from veilsum.roles.launch.ourselves import COMMAND, our_python
from veilsum.transport.errors import TransportError

START_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
LOOK_EVERY_S = 1.0

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def hosting(loaded: LoadedFederation, *, embedded: bool = False) -> Iterator[None]:
    """A broker and the roster on it, for as long as the block lasts."""
    login = loaded.folder / BROKER_FOLDER / NOTICES_FOLDER
    if not login.is_dir():
        raise ParameterError(
            [f"{login} does not exist: veilsum invite {loaded.folder} makes it, or copy it here"]
        )
    broker = _Broker(loaded.folder, ["--embedded"] if embedded else [])
    try:
        if not broker.start():
            raise LocalProtocolError("the broker did not start: its own words are above")
        with _Handing(loaded, login, broker):
            yield
    finally:
        broker.stop()


class _Broker:
    """The broker's process, killed with the thread that starts it: that of the server, or the one that hands out."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self._command = our_python(COMMAND, "broker", str(folder), *flags)
        self._logins = folder / BROKER_FOLDER / ACCESS_LIST
        self._read_at = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> bool:
        """Whether it began to serve; what it said is passed on."""
        self._read_at = self._changed_at()
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        assert self._process.stdout is not None
        told, _, _ = select.select([self._process.stdout], [], [], START_WITHIN_S)
        said = self._process.stdout.readline().strip() if told else ""
        if said:
            sys.stderr.write(f"broker: {said}\n")
        return bool(said)

    def look_after(self) -> None:
        """Start it again if it ended, and tell it of new logins, which the embedded one sees by itself."""
        assert self._process is not None
        if self._process.poll() is not None:
            _logger.warning("the broker ended and is started again")
            self.stop()
            self.start()
        elif self._changed_at() != self._read_at:
            self._read_at = self._changed_at()
            self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _changed_at(self) -> int:
        return self._logins.stat().st_mtime_ns


class _Handing:
    """The thread that hands the roster out."""

    def __init__(self, loaded: LoadedFederation, login: Path, broker: _Broker) -> None:
        self._loaded = loaded
        self._login = login
        self._broker = broker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._hand_out, name="hands the roster out", daemon=True)

    def __enter__(self) -> None:
        self._task = self._loop.create_task(self._serve())
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

    async def _serve(self) -> None:
        """Two things apart: a broker that died before we ever reached it has to come back, too."""
        handing = asyncio.create_task(publish_notices(self._loaded, self._login, self._content))
        try:
            while not handing.done():
                self._broker.look_after()
                await asyncio.wait([handing], timeout=LOOK_EVERY_S)
            handing.result()
        finally:
            handing.cancel()
            await asyncio.wait([handing])

    def _content(self) -> bytes:
        return (self._loaded.folder / ROSTER_FILE).read_bytes()
