"""Runs a `veilsum` command and notes which files it visits.

    python -m veilsum.simulations.docs.traced FOLDER COMMAND ...

A visit is a call of a function outside imports. Each file is noted once, with the machine and the phase in which it was
first visited; phases are read off the transition tables while machines move along them. The tasks of the transport run
beside the machine at moments that differ from run to run: what they visit is noted apart, as `carrying`. Processes
that `launch` has forked for it are traced the same way, into files of their own.
"""

from __future__ import annotations

import inspect
import shlex
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TextIO

from veilsum.protocol.machines.transitions import TransitionTable
from veilsum.roles.cli.main import main as veilsum
from veilsum.roles.launch import nursery_process
from veilsum.roles.launch.nursery import PROGRAM
from veilsum.roles.launch.ourselves import our_python

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("protocol", "transport", "roles", "simulations")
STARTING = "starting"
CARRYING = "carrying"
WRAPPER = "python"
NURSERY = "nursery"
"""In place of a command: the process that forks the others."""
_FRAMING = "transport/framing/"
"""Whose turn comes when something arrives, also where a role's own task waits for it."""
_TASK_RUNNER = "asyncio/events.py"
_MOVES = {
    TransitionTable.require_move.__code__: "target",
    TransitionTable.require_expected.__code__: "phase",
}


class Tracer:
    """A profile function: writes `phase<TAB>file` for every file at its first visit."""

    def __init__(self, record: TextIO) -> None:
        self._record = record
        self._phase = STARTING
        self._visited: set[tuple[bool, str]] = set()
        self._names: dict[str, str | None] = {}
        self._writing = threading.Lock()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return
        name = self._name(frame.f_code.co_filename)
        if name is None:
            return
        if frame.f_code in _MOVES:
            table, phase = frame.f_locals["self"], frame.f_locals[_MOVES[frame.f_code]]
            self._phase = f"{table.name}, {phase.value}"
        if not {(True, name), (False, name)} <= self._visited:
            self._note(name, self._phase, frame)

    def _note(self, name: str, phase: str, frame: FrameType) -> None:
        root = self._root(frame)
        if root is None:
            return
        carrying = root.startswith("transport/") or name.startswith(_FRAMING)
        with self._writing:
            if (carrying, name) not in self._visited:
                self._visited.add((carrying, name))
                self._record.write(f"{CARRYING if carrying else phase}\t{name}\n")
                self._record.flush()

    def _root(self, frame: FrameType) -> str | None:
        """The file of ours in which the running task or thread began; none while a module is imported."""
        root: str | None = None
        above: FrameType | None = frame
        while above is not None and not above.f_code.co_filename.endswith(_TASK_RUNNER):
            if above.f_code.co_filename.startswith("<frozen importlib"):
                return None
            root = self._name(above.f_code.co_filename) or root
            above = above.f_back
        return root

    def _name(self, file: str) -> str | None:
        """The path inside our folders, without this package and the `__init__` files."""
        if file not in self._names:
            self._names[file] = _inside(file)
        return self._names[file]


def _inside(file: str) -> str | None:
    path = Path(file).resolve()
    if not path.is_relative_to(ROOT) or path.name == "__init__.py":
        return None
    name = path.relative_to(ROOT)
    ours = name.parts[0] in FOLDERS and name.parts[:2] != ("simulations", "docs")
    return name.as_posix() if ours else None


def record_file(folder: Path, arguments: Sequence[str]) -> Path:
    """The record of one process, named after its command and its party."""
    party = [after for flag, after in pairwise(arguments) if flag == "--name"]
    return folder / f"{'-'.join([arguments[0], *party])}.visits"


def write_wrapper(folder: Path) -> Path:
    """A program in place of Python: it runs the nursery by way of this module, anything else as it is."""
    python, place = shlex.quote(sys.executable), our_python(__spec__.name, str(folder), NURSERY)[1:]
    wrapper = folder / WRAPPER
    # What this module imports must start no threads either, before the nursery forks.
    alone = " ".join(f"{name}=1" for name in nursery_process.ONE_THREAD)
    ours = f'if [ "$3" = {PROGRAM} ]; then shift 3; {alone} exec {python} {shlex.join(place)} "$@"; fi'
    wrapper.write_text(f'#!/bin/sh\n{ours}\nexec {python} "$@"\n', encoding="utf-8")
    wrapper.chmod(0o700)
    return wrapper


def main(arguments: Sequence[str]) -> int:
    folder, command = Path(arguments[0]), arguments[1:]
    wrapper = folder / WRAPPER
    if command[0] == NURSERY:
        nursery_process.main(command[1:], lambda: sys.exit(trace(folder, sys.argv[1:])))
        return 0
    sys.executable = str(wrapper if wrapper.exists() else write_wrapper(folder))
    return trace(folder, command)


def trace(folder: Path, command: Sequence[str]) -> int:
    """Run a command in this process, and note what it visits."""
    with record_file(folder, command).open("a", encoding="utf-8") as record:
        tracer = Tracer(record)
        threading.setprofile(tracer)
        sys.setprofile(tracer)
        try:
            return veilsum(command)
        finally:
            sys.setprofile(None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
