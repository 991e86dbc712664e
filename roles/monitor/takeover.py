"""Whatever Python would write to standard error by itself becomes a line of the log, while a role process runs.

Libraries log and warn, the event loop tells of exceptions that nobody looked at, a thread ends with one, user code
prints. None of that knows of `--log-format json`, and a program that reads the lines must be able to read every one of
them. So loggers, warnings and hooks lead here: a warning is told as one, what nobody expected as `unexpected`, with its
type and, if VEILSUM_TRACEBACK=1, its traceback. In JSON a line that somebody writes to standard error is a fact, too.

What leaves no way to Python stays outside: an interpreter that crashes, a library in C that writes to the file itself.

Implements specs/guide.md, section 4.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from veilsum.roles.monitor.log import RoleLog
from veilsum.transport.printable import printable

OUR_LOGGERS = "veilsum"
LONGEST_TEXT = 1000


@contextlib.contextmanager
def taken_over(log: RoleLog) -> Iterator[None]:
    """Everything as it was before, afterwards."""
    root = logging.getLogger()
    before = root.handlers, root.level, warnings.showwarning, threading.excepthook, sys.unraisablehook
    root.handlers, root.level = [_Bridge(log)], logging.WARNING
    hooks = _Hooks(log)
    warnings.showwarning = hooks.warn
    threading.excepthook, sys.unraisablehook = hooks.thread_ended, hooks.ignored
    try:
        with _lines_as_facts(log) if log.is_json else contextlib.nullcontext():
            yield
    finally:
        root.handlers, root.level, warnings.showwarning, threading.excepthook, sys.unraisablehook = before


@contextlib.contextmanager
def _lines_as_facts(log: RoleLog) -> Iterator[None]:
    lines = _Lines(log)
    try:
        with contextlib.redirect_stderr(lines):
            yield
    finally:
        lines.finish()


class _Bridge(logging.Handler):
    """What is logged at any place; of a library's text, which may be long, the first line."""

    def __init__(self, log: RoleLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception as mismatch:  # noqa: BLE001 - a library's wrong arguments are no reason to end
            text = f"{record.msg} ({type(mismatch).__name__}: {mismatch})"
        if record.name.split(".")[0] != OUR_LOGGERS:
            text = f"{record.name}: {text.partition(chr(10))[0][:LONGEST_TEXT]}"
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            self._log.say("warning", text=text)
        else:
            tell_unexpected(self._log, text, error)


class _Hooks:
    def __init__(self, log: RoleLog) -> None:
        self._log = log

    def warn(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message)[:LONGEST_TEXT]
        self._log.say("warning", text=f"{category.__name__}: {text} ({filename}, line {lineno})")

    def thread_ended(self, told: threading.ExceptHookArgs) -> None:
        if told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
            name = "a thread" if told.thread is None else f"thread {told.thread.name}"
            tell_unexpected(self._log, f"{name} ended", told.exc_value)

    def ignored(self, told: Any) -> None:
        if told.exc_value is not None:
            tell_unexpected(self._log, told.err_msg or "ignored in clean-up", told.exc_value)


def tell_unexpected(log: RoleLog, text: str, error: BaseException) -> None:
    """What no part of this program counts on; it goes on, and whoever looks for the cause finds it here."""
    more = {}
    if os.environ.get("VEILSUM_TRACEBACK") == "1":
        more["traceback"] = "".join(traceback.format_exception(error))
    log.say("unexpected", text=text, error=type(error).__name__, detail=str(error)[:LONGEST_TEXT], **more)


class _Lines(io.TextIOBase):
    """Standard error as facts: each line that is written becomes one."""

    def __init__(self, log: RoleLog) -> None:
        super().__init__()
        self._log = log
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            if line.strip():
                self._log.say("printed", text=printable(line[:LONGEST_TEXT]))
        self._begun = self._begun[-LONGEST_TEXT:]
        return len(text)

    def finish(self) -> None:
        """A last line may have no end."""
        if self._begun:
            self.write("\n")
