"""The log of one process in a file of its own, NAME.log, for `veilsum page`: the facts as JSON, one line each.

Whoever runs under `launch` has its log written by that, with what user code prints; `host` and `join` run for months,
and write bounded logs of their own. It is a picture of the run and no part of it: a log that cannot be written is told
of once, and stops nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

LARGEST = 64 << 20
"""Bytes after which a log begins anew; the one before is kept beside it, under a name that no page reads."""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class KeptLog:
    """Appends lines, for as long as that works."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.log"
        self._works = True

    def add(self, line: str) -> str:
        """Put a line at the end; what there is to tell is why that works no more, and empty otherwise."""
        if not self._works:
            return ""
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(self.path, _APPEND, 0o600), "ab") as file:
                full = file.tell() + len(line) > LARGEST
                file.write(f"{line}\n".encode())
            if full:
                self.path.replace(self.path.with_suffix(".log.before"))
        except OSError as error:
            self._works = False
            problem = f"{self.path} is not written any more ({error.strerror})"
            return f"{problem}; the run goes on: make room there, and start again for a log"
        return ""
