"""Which broker the tests get: mosquitto where it is, the embedded one with a visible line, an error in CI."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Provide = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def provide(tmp_path: Path, repository: Path) -> Provide:
    """Run the script on a machine whose only programs are the given ones."""

    def run(programs: dict[str, str], ci: str = "") -> subprocess.CompletedProcess[str]:
        for name, body in programs.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        return subprocess.run(
            ["/bin/sh", repository / "tests/support/provide_broker.sh"],
            env={"PATH": str(tmp_path), "CI": ci},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_mosquitto_on_the_path_is_used(provide: Provide, tmp_path: Path) -> None:
    done = provide({"mosquitto": "exit 0"}, ci="true")
    assert done.returncode == 0
    assert done.stdout == f"broker for the tests: {tmp_path}/mosquitto\n"


def test_without_root_the_embedded_broker_is_announced(provide: Provide) -> None:
    done = provide({"id": "echo 1000"})
    assert done.returncode == 0
    assert "the embedded one; tests that need mosquitto are skipped" in done.stdout


def test_a_missing_mosquitto_is_an_error_in_ci(provide: Provide) -> None:
    done = provide({"id": "echo 1000"}, ci="true")
    assert done.returncode == 1
    assert "apt install mosquitto" in done.stderr
