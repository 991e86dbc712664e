"""What SIGINT, SIGTERM and SIGHUP do to a command, from its first line to its last.

    beginning   it ends at once with one line and exit code 130: nothing was sent, and nothing is to be put away.
                Raising KeyboardInterrupt instead would come out of the middle of any import, as a traceback, or be
                swallowed there
    running     an ordinary command is interrupted as by Ctrl-C; an event loop that stops in order takes over
    ending      nothing: what there was to stop has stopped, and its exit code is decided

A hangup that the caller had switched off (`nohup`) stays so. What Python itself does before our first line is out of
reach from here: in these few milliseconds SIGTERM kills silently, and SIGINT may show a traceback of Python's.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence

from veilsum.roles.cli.exit_codes import EXIT_INTERRUPTED
from veilsum.roles.cli.failure import stopped_line

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Course:
    """Where the command of this process stands; there is one per process, because signals are."""

    arguments: Sequence[str] = ()
    begun = False
    ending = False


def begin(arguments: Sequence[str]) -> None:
    """From now on until something else is said, a signal ends this process at once."""
    _Course.arguments = list(arguments)
    if not _Course.begun:
        _Course.begun = True
        for which in STOPPING:
            if which != signal.SIGHUP or signal.getsignal(which) is not signal.SIG_IGN:
                signal.signal(which, _leave_at_once)


def nothing_left_to_stop() -> None:
    """From now on signals change nothing: the process is about to end by itself."""
    _Course.ending = True


def _leave_at_once(*_: object) -> None:
    if not _Course.ending:
        line = stopped_line(_Course.arguments, EXIT_INTERRUPTED)
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode())
        os._exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within it a signal raises KeyboardInterrupt, in a process that has begun as a command."""
    with _handled_by(_interrupt) if _Course.begun else contextlib.nullcontext():
        yield


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled_by(handler: Callable[..., None]) -> Iterator[None]:
    before = {which: signal.getsignal(which) for which in STOPPING}
    for which, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(which, handler)
    try:
        yield
    finally:
        for which, was in before.items():
            signal.signal(which, was)


@contextlib.contextmanager
def stopping_in_order(stop: Callable[[], None]) -> Iterator[None]:
    """Within it the running event loop calls `stop` at the first signal; a later one changes nothing."""
    import asyncio

    loop = asyncio.get_running_loop()
    told = False

    def once() -> None:
        nonlocal told
        if not told:
            told = True
            stop()

    before = {which: signal.getsignal(which) for which in STOPPING}
    heard = [which for which in STOPPING if which != signal.SIGHUP or before[which] is not signal.SIG_IGN]
    for which in heard:
        loop.add_signal_handler(which, once)
    try:
        yield
    finally:
        for which in heard:
            loop.remove_signal_handler(which)
            signal.signal(which, before[which])
