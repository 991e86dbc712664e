"""What stands around a server on the machine that hosts a federation: its broker, and the roster for who joins.

The broker is a process of its own, which ends with us however we end, and is started again if it ends alone. A thread
with a link of its own hands the signed roster out, read anew from its file each time, so that what the organiser signs
meanwhile reaches who waits for it; and when the broker's logins changed, the broker is told to read them again. What
keeps the roster from being handed out is told once and met again at the next look: no run ends with it, and the broker
is looked after all the same.

What the broker writes to its standard error is passed on, as facts of the party `broker` where lines are JSON.

Implements specs/invitations.md, section 5.
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
from shlex import quote
from typing import TextIO

from veilsum.protocol.errors import LocalProtocolError, ParameterError, ProtocolError
from veilsum.roles.broker.files import ACCESS_LIST
from veilsum.roles.broker.notices import publish_notices
from veilsum.roles.cli.failure import ERROR
from veilsum.roles.federation.admission import NOTICES_FOLDER
from veilsum.roles.federation.folder import BROKER_FOLDER, LoadedFederation
from veilsum.roles.federation.signed_roster import ROSTER_FILE
from veilsum.roles.launch.children import LAST_WORDS_WITHIN_S
from veilsum.roles.launch.lifeline import die_with_parent
from veilsum.roles.launch.ourselves import COMMAND, our_python
from veilsum.roles.launch.outcome import BROKER
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.log_format import LogFormat
from veilsum.transport.errors import TransportError
from veilsum.transport.printable import printable

START_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
LOOK_EVERY_S = 1.0

_logger = logging.getLogger(__name__)


class _Trouble:
    """What goes wrong, told once for the same words, however often it is met."""

    def __init__(self, log: RoleLog) -> None:
        self._log = log
        self.told = ""

    def tell(self, text: str) -> None:
        """In the log of the role, once that has taken over what is logged, and until then as the broker's."""
        if text == self.told:
            return
        self.told = text
        if _logger.hasHandlers():
            _logger.warning("%s", text)
        else:
            self._log.say("warning", text=text)

    def is_over(self) -> None:
        self.told = ""


@contextlib.contextmanager
def hosting(
    loaded: LoadedFederation, *, embedded: bool = False, log_format: LogFormat = "text"
) -> Iterator[None]:
    """A broker and the roster on it, for as long as the block lasts."""
    login = loaded.folder / BROKER_FOLDER / NOTICES_FOLDER
    if not login.is_dir():
        raise ParameterError(
            [f"{login} does not exist: veilsum invite {quote(str(loaded.folder))} makes it, or copy it here"]
        )
    log = RoleLog(BROKER, log_format)
    broker = _Broker(loaded.folder, ["--embedded"] if embedded else [], log)
    try:
        if not broker.start():
            raise LocalProtocolError(f"the broker did not start: {broker.reason}")
        with _Handing(loaded, login, broker, _Trouble(log)):
            yield
    finally:
        broker.stop()


class _Broker:
    """The broker's process, killed with the thread that starts it: that of the server, or the one that hands out."""

    def __init__(self, folder: Path, flags: Sequence[str], log: RoleLog | None = None) -> None:
        self._command = our_python(COMMAND, "broker", str(folder), *flags)
        self._logins = folder / BROKER_FOLDER / ACCESS_LIST
        self._read_at = 0
        self._process: subprocess.Popen[str] | None = None
        self._log = log or RoleLog(BROKER)
        self._screen = sys.stderr
        self._trouble = _Trouble(self._log)
        self.reason = ""
        """The last that it said on standard error, without the words that every error begins with."""

    def start(self) -> bool:
        """Whether it began to serve; what it said is passed on."""
        self._read_at = self._changed_at()
        process = self._process = subprocess.Popen(  # noqa: S603 - ourselves
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self.reason = "no reason given"
        reader = threading.Thread(
            target=self._pass_on, args=(process.stderr,), name="hears the broker", daemon=True
        )
        reader.start()
        told, _, _ = select.select([process.stdout], [], [], START_WITHIN_S)
        said = process.stdout.readline().strip() if told else ""
        if not said:
            self.stop()
            reader.join(LAST_WORDS_WITHIN_S)
        elif self._log.is_json:
            self._log.say("broker", text=said)
        else:
            self._write(f"broker: {said}")
        return bool(said)

    def look_after(self) -> None:
        """Start it again if it ended, and tell it of new logins, which the embedded one sees by itself."""
        assert self._process is not None
        try:
            if self._process.poll() is not None:
                self._start_again()
                return
            changed_at = self._changed_at()
            self._trouble.is_over()
            if changed_at != self._read_at:
                self._read_at = changed_at
                self._process.send_signal(signal.SIGHUP)
        except OSError as error:
            self._trouble.tell(f"the broker is not looked after, and is at the next look: {_words(error)}")

    def _start_again(self) -> None:
        if not self._trouble.told:
            self._trouble.tell("the broker ended and is started again")
        self.stop()
        if self.start():
            self._trouble.is_over()
        else:
            self._trouble.tell(f"the broker did not start again, and is tried further: {self.reason}")

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

    def _pass_on(self, lines: TextIO) -> None:
        with lines:
            for line in map(str.strip, lines):
                if not line:
                    continue
                self.reason = line.removeprefix(ERROR)
                if self._log.is_json:
                    self._log.say("printed", text=line)
                else:
                    self._write(line)

    def _write(self, line: str) -> None:
        """Past whatever a role has put in the place of standard error meanwhile; a reader that left ends nothing."""
        with contextlib.suppress(OSError):
            self._screen.write(f"{printable(line)}\n")
            self._screen.flush()


class _Handing:
    """The thread that hands the roster out, and looks after the broker."""

    def __init__(self, loaded: LoadedFederation, login: Path, broker: _Broker, trouble: _Trouble) -> None:
        self._loaded = loaded
        self._login = login
        self._broker = broker
        self._trouble = trouble
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hands the roster out", daemon=True)

    def __enter__(self) -> None:
        self._task = self._loop.create_task(self._serve())
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        """The loop is closed here, and not by its thread: that may have ended, and a closed one takes no call."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(STOP_WITHIN_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    async def _serve(self) -> None:
        """Two things apart: whatever becomes of handing out, a broker that died has to come back."""
        handing = asyncio.create_task(self._hand_out())
        try:
            while True:
                self._broker.look_after()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            handing.cancel()
            await asyncio.wait([handing])

    async def _hand_out(self) -> None:
        while True:
            try:
                await publish_notices(self._loaded, self._login, self._content)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on and who joins still waits
                self._trouble.tell(
                    f"the roster is not handed out, and is tried further: {_words(error)}; until then send "
                    f"{ROSTER_FILE} to who joins"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def _content(self) -> bytes:
        content = (self._loaded.folder / ROSTER_FILE).read_bytes()
        self._trouble.is_over()
        return content


def _words(error: Exception) -> str:
    """What people are told of an error: the words of ours, the file of the system's, the kind of any other."""
    if isinstance(error, ProtocolError | TransportError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"{type(error).__name__}: {error}"
