"""Which broker and which model checker the tests get: what is there; else less with a visible line, an error in CI."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Provide = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def provide(tmp_path: Path, repository: Path) -> Provide:
    """Run the script on a machine whose only programs are the given ones."""

    def run(
        programs: dict[str, str], ci: str = "", script: str = "provide_broker.sh"
    ) -> subprocess.CompletedProcess[str]:
        for name, body in programs.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        return subprocess.run(
            ["/bin/sh", repository / "tests/support" / script],
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


def test_a_model_checker_on_the_path_is_used(provide: Provide, tmp_path: Path) -> None:
    done = provide({"spin": "exit 0", "gcc": "exit 0"}, ci="true", script="provide_spin.sh")
    assert done.returncode == 0
    assert done.stdout == ""
    assert f"{tmp_path}/spin" in done.stderr


def test_without_root_a_missing_model_checker_is_announced(provide: Provide) -> None:
    done = provide({"id": "echo 1000", "spin": "exit 0"}, script="provide_spin.sh")
    assert done.returncode == 0
    assert "apt install spin" in done.stderr


def test_a_missing_model_checker_is_an_error_in_ci(provide: Provide) -> None:
    done = provide({"id": "echo 1000", "gcc": "exit 0"}, ci="true", script="provide_spin.sh")
    assert done.returncode == 1
    assert "apt install spin" in done.stderr


def test_root_installs_a_missing_model_checker(provide: Provide, tmp_path: Path) -> None:
    installs = (
        f'for one in spin gcc; do echo "exit 0" > {tmp_path}/$one; /bin/chmod 755 {tmp_path}/$one; done'
    )
    done = provide({"id": "echo 0", "apt-get": installs}, ci="true", script="provide_spin.sh")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "spin").exists()
