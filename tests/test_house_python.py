"""Which Python `make` uses: the one that is asked for, in an environment of its own, or one line that says why not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.refusals import require_mentions

Make = Callable[[str], subprocess.CompletedProcess[str]]
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def make(repository: Path) -> Make:
    """What `make test` would do with the given PYTHON, without doing it."""

    def run(python: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--dry-run", "--always-make", "test", f"PYTHON={python}"],
            cwd=repository,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def a_python(folder: Path, version: str, venv: bool = True) -> str:
    """A program that answers the questions the makefile asks, as the given Python would."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\ncase "$2" in *venv*) exit {int(not venv)} ;; *) echo {version} ;; esac\n')
    program.chmod(0o755)
    return str(program)


def test_the_chosen_interpreter_builds_and_runs_an_environment_of_its_version(make: Make) -> None:
    done = make(sys.executable)
    assert done.returncode == 0
    assert f"-m venv --clear .venv-{RUNNING}" in done.stdout
    assert f".venv-{RUNNING}/bin/python -m pytest" in done.stdout


def test_without_a_choice_the_environment_has_no_version_in_its_name(make: Make) -> None:
    done = make("")
    assert done.returncode == 0
    assert ".venv/bin/python -m pytest" in done.stdout


def test_an_interpreter_that_does_not_run_is_one_line(make: Make) -> None:
    done = make("/no/such/python")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    require_mentions(done.stderr, "PYTHON=/no/such/python")


@pytest.mark.parametrize("version", ["2.7", "3.10", "3.14"])
def test_an_interpreter_of_another_version_is_one_line(make: Make, tmp_path: Path, version: str) -> None:
    done = make(a_python(tmp_path, version))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    require_mentions(done.stderr, version, "3.11", "3.12", "3.13")


def test_an_interpreter_without_venv_is_one_line_that_names_the_package(make: Make, tmp_path: Path) -> None:
    done = make(a_python(tmp_path, "3.12", venv=False))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "apt install python3.12-venv" in done.stderr
