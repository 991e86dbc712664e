"""Launched federations for tests: the command, its processes, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.federations import wait_until

COMMAND = (sys.executable, "-m", "veilsum")


def run_veilsum(*arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    command = [*COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def processes_of(folder: Path) -> Mapping[int, str]:
    """Number and command line of live processes that name the folder or work in it."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = path.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            works_there = path.joinpath("cwd").resolve().is_relative_to(folder)
        except OSError:
            continue
        if text and (str(folder) in text or works_there) and int(path.name) != os.getpid():
            found[int(path.name)] = text
    return found


def require_nothing_left(folder: Path, seconds: float = 30.0) -> None:
    wait_until(lambda: not processes_of(folder), seconds)


@contextmanager
def launching(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A launch that has committed a round; it is ended with the block."""
    command = [*COMMAND, "launch", str(folder), *arguments]
    log = folder / "logs" / "server.log"
    known = log.read_text().count("round_committed") if log.exists() else 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: log.exists() and log.read_text().count("round_committed") > known)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)
