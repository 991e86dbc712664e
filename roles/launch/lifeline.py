"""What ends a process together with the one that started it, however that one ends.

    pipe      `launch` alone holds the writing end; every process below it reads, and hears the end of the file when
              `launch` is gone, be it by kill -9. It then ends its whole group, and so what it has started itself.
    kernel    where it knows PR_SET_PDEATHSIG (Linux): a process is killed with the process that forked it. That also
              covers what reads no pipe of ours, such as mosquitto, and a forking process that dies alone.

Both kill outright: a role may die at any moment without losing a committed round, and a port or a lock that is kept
for a good-bye would stand in the way of the next `launch --resume`. Rejected: a process that looks after the others,
which somebody may kill as well; asking for the parent's number every second, which is late, and wrong after a reuse.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PRCTL: Callable[..., int] | None = (
    getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
)


def die_with_parent() -> None:
    """Be killed when the thread that started us ends; does nothing where the kernel cannot do it.

    Safe between fork and exec: it is one call of the kernel, looked up when this module was imported.
    """
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_with_parent_of(parent: int) -> None:
    """The same in a process that was just forked from `parent`, also if that is gone already."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def end_group_at_end_of(pipe: int) -> None:
    """From now on: when the pipe's other end is closed everywhere, kill this process and all of its group."""
    threading.Thread(target=_watch, args=(pipe,), name="lifeline", daemon=True).start()


def _watch(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.killpg(0, signal.SIGKILL)
