"""Running mosquitto with a federation's own configuration; SIGHUP makes it read logins and access list anew.

Implements specs/broker.md, section 1.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from veilsum.roles.broker.checked import require_own_configuration
from veilsum.roles.broker.files import CONFIGURATION
from veilsum.roles.broker.ports import answers, listens, require_free_port
from veilsum.roles.federation.private_files import replace_private_file
from veilsum.roles.launch.lifeline import die_with_parent

_ALSO_IN = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
_START_S = 10.0
_MEETS_ANOTHER_S = 1.0
_VERSION_S = 5.0
_ROOT_CONFIGURATION = ".mosquitto-as-root.conf"


def find_mosquitto() -> str | None:
    """The program, also where distributions put it outside an ordinary user's path."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=_ALSO_IN)


def version_of(program: str) -> str:
    """`mosquitto version 2.0.11`, or the program's name where it does not say."""
    try:
        told = subprocess.run(  # noqa: S603 - found on the path
            [program, "-h"], capture_output=True, text=True, check=False, timeout=_VERSION_S
        ).stdout
    except subprocess.TimeoutExpired:
        told = ""
    return told.splitlines()[0] if told else "mosquitto"


def run_mosquitto(program: str, folder: Path, port: int, on_ready: Callable[[], None]) -> int:
    """Run until mosquitto ends or we are told to stop; returns its exit code, 0 after a stop."""
    command = [program, "-c", _configuration_for_this_user(folder)]
    process = subprocess.Popen(command, cwd=folder, preexec_fn=die_with_parent)  # noqa: S603 - found on the path
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        process.terminate()

    def reload(*_: object) -> None:
        process.send_signal(signal.SIGHUP)

    with (
        _handling(signal.SIGTERM, stop),
        _handling(signal.SIGINT, stop),
        _handling(signal.SIGHUP, reload),
    ):
        ready = _wait_until_listening(process, port)
        if ready:
            on_ready()
        code = process.wait()
    if not (ready or stopped):
        require_free_port(port)
    return 0 if stopped else code


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it serves the port: another's listener answers, too, and mosquitto ends when it finds one there."""
    give_up_at = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < give_up_at:
        if answers(port):
            own = listens(process.pid, port)
            if own or (own is None and _stays(process)):
                return True
        time.sleep(0.05)
    return False


def _stays(process: subprocess.Popen[bytes]) -> bool:
    """Where the system does not tell who listens: whether it is there still when it had time to meet another."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_MEETS_ANOTHER_S)
        return False
    return True


def _configuration_for_this_user(folder: Path) -> str:
    """What mosquitto is started with, if that is of our kind.

    Started by root, it becomes another user, who cannot read this folder, unless it is told not to.
    """
    own = require_own_configuration(folder)
    if os.geteuid() != 0:
        return CONFIGURATION
    as_root = f"user root\n{own}".encode()
    replace_private_file(folder / _ROOT_CONFIGURATION, as_root, in_closed_folder=False)
    return _ROOT_CONFIGURATION


@contextlib.contextmanager
def _handling(which: signal.Signals, handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(which, handler)
    try:
        yield
    finally:
        signal.signal(which, before)
