"""A request that cannot work exits with 2, in one sentence that names what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilsum.roles import cli

SIMULATE = ("simulate", "--parties", "3", "--rounds", "1")
VECTORS = (*SIMULATE, "--task", "vectors:8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*SIMULATE, "--task", "no.such:thing"), "module no.such cannot be imported"),
        ((*SIMULATE, "--task", "os:no_such"), "module os has no function no_such"),
        ((*SIMULATE, "--task", "os:getcwd"), "task 'os:getcwd': getcwd(options) raised TypeError"),
        ((*SIMULATE, "--task", "mnist"), "task mnist needs a data folder (--data FOLDER)"),
        ((*SIMULATE, "--task", "mnist", "--data", "no/such/folder"), "no/such/folder is not there"),
        ((*VECTORS, "--compare", "central"), "task vectors learns nothing"),
        ((*VECTORS, "--scheme", "perturbed"), "task vectors:8 has no model to disguise"),
    ],
    ids=lambda value: " ".join(value[5:]) if isinstance(value, tuple) else "",
)
def test_a_task_that_does_not_fit_exits_with_2(
    arguments: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == cli.EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    assert told in error
    assert "unexpected" not in error
