"""Machines of several organisations as folders: commands in the words of a page, each run in its owner's folder.

What a page shows after a prompt (`alice$ veilsum ...`) is taken from the page itself, so that it cannot say what does
not work. A site has the packages that it was given: what an office lacks, its commands cannot load.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

SECONDS = 120.0
_PROMPT = re.compile(r"(?P<site>[a-z]+)\$ +(?P<words>.*)")
PACKAGE = """
from pathlib import Path
from typing import IO

import numpy as np
from torch import nn
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.task import Samples, TaskOptions


def task(options: TaskOptions) -> SupervisedTask:
    assert options.data is not None and (options.data / "ecg.csv").exists()
    inputs = np.random.default_rng(int((options.data / "ecg.csv").read_text())).normal(size=(24, 6))
    samples = Samples(inputs.astype(np.float32), (inputs[:, 0] > 0).astype(np.int64))
    return SupervisedTask(samples, samples, lambda: nn.Linear(6, 2))
"""
"""A task of an organisation's own, in a package that only those who hold data have installed."""


def commands_of(page: str) -> list[tuple[str, list[str]]]:
    """Site and words of every command that a text shows behind a prompt; lines that end in a backslash go on."""
    text = re.sub(r"\\\n\s*", "", page)
    found = (_PROMPT.fullmatch(line) for line in text.splitlines())
    return [(one["site"], shlex.split(one["words"], comments=True)) for one in found if one]


@dataclass
class Site:
    """One organisation's machine: a folder, the packages installed there, and its data."""

    folder: Path
    seed: int | None = None
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        if self.seed is not None:
            (self.folder / "installed" / "clinics").mkdir(parents=True)
            (self.folder / "installed" / "clinics" / "ecg.py").write_text(PACKAGE)
            (self.folder / "data").mkdir()
            (self.folder / "data" / "ecg.csv").write_text(str(self.seed))

    def begin(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """A command whose end is waited for with `done`."""
        return self._begin(words, subprocess.PIPE, subprocess.PIPE)

    def run(self, words: Sequence[str], typed: str = "", code: int = 0) -> str:
        return done(self.begin(words), typed, code)

    def start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """A command that stays: a broker, a server, a party."""
        with (self.folder / f"{words[1]}.log").open("w") as log:
            process = self._begin(words, subprocess.DEVNULL, log)
        self.started.append(process)
        return process

    def _begin(self, words: Sequence[str], typed: int, printed: int | IO[str]) -> subprocess.Popen[str]:
        assert words[0] == "veilsum"
        installed = {"PYTHONPATH": str(self.folder / "installed")}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", *words],
            cwd=self.folder,
            env={**os.environ, **installed, "OMP_NUM_THREADS": "1"},
            stdin=typed,
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def receive(self, source: Path, target: str) -> None:
        """What came by post, by copy or by stick."""
        path = self.folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, path, dirs_exist_ok=True)
        else:
            shutil.copy2(source, path)

    def said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def done(process: subprocess.Popen[str], typed: str = "", code: int = 0) -> str:
    """All that a command printed, which must have ended with this code."""
    printed, _ = process.communicate(typed, timeout=SECONDS)
    assert process.returncode == code, printed
    return printed
