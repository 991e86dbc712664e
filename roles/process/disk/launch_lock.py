"""One `veilsum launch` at a time in a federation's folder, and nobody else in it while a run is set aside.

A fresh launch sets the run before aside (roles/launch/earlier_run.py). If it is killed, what lies aside is the run that
counts, and the next launch puts it back over whatever began in its place: so no process begins there by itself.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from veilsum.protocol.errors import ParameterError

LOCK = "launch.lock"
EARLIER_RUN_FOLDER = "earlier-run"


def hold(federation: Path) -> int:
    """Take the lock until the descriptor is closed, or its process ends; refused while another launch has it."""
    descriptor = _taken(federation, os.O_CREAT)
    if descriptor is None:
        raise ParameterError([f"{federation}: another veilsum launch is at work there: stop it first"])
    return descriptor


def require_no_run_aside(federation: Path) -> None:
    """Refuse to begin where a launch that was killed left a run aside; its own processes begin under its lock."""
    if not (federation / EARLIER_RUN_FOLDER).exists():
        return
    if os.path.lexists(federation / LOCK):
        descriptor = _taken(federation, 0)
        if descriptor is None:
            return
        os.close(descriptor)
    raise ParameterError([aside_refusal(federation)])


def aside_refusal(federation: Path) -> str:
    return (
        f"{federation / EARLIER_RUN_FOLDER} holds a run that a fresh one has not replaced yet: if no launch is at work "
        f"there, veilsum launch {federation} puts it back and starts nothing"
    )


def _taken(federation: Path, creating: int) -> int | None:
    """The lock; None if somebody has it. A folder of a stranger may have a link in its place, which is not followed."""
    try:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | creating
        descriptor = os.open(federation / LOCK, flags, 0o600)
    except OSError as error:
        raise ParameterError(
            [f"{federation / LOCK} cannot be opened ({error.strerror}): correct the folder"]
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
