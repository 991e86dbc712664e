"""A request that cannot work exits with 2, in one sentence that names what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.federations import make_federation
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import AbortReason
from veilsum.roles.broker import connect
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.signed_roster import ROSTER_FILE

SIMULATE = ("simulate", "--parties", "3", "--rounds", "1")
VECTORS = (*SIMULATE, "--task", "vectors:8")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((*SIMULATE, "--task", "no.such:thing"), "no.such module"),
        ((*SIMULATE, "--task", "os:no_such"), "os no_such function"),
        ((*SIMULATE, "--task", "os:getcwd"), "os:getcwd TypeError"),
        ((*SIMULATE, "--task", "mnist"), "mnist --data"),
        ((*SIMULATE, "--task", "mnist", "--data", "no/such/folder"), "no/such/folder"),
        ((*VECTORS, "--compare", "central"), "vectors learns"),
        ((*VECTORS, "--scheme", "perturbed"), "vectors:8 model"),
    ],
    ids=lambda value: " ".join(value[5:]) if isinstance(value, tuple) else "",
)
def test_a_simulation_that_cannot_work_exits_with_2(
    arguments: tuple[str, ...],
    names: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == cli.EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    require_mentions(error, *names.split())
    assert "unexpected" not in error


def test_a_folder_that_is_no_federation_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without settings, and without a roster: each time the missing file and how to get one."""
    assert cli.main(["roster", "show", str(tmp_path / "nodir")]) == cli.EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    require_mentions(error, "federation.toml")
    assert "veilsum init" in error
    folder = make_federation(tmp_path / "fed").folder
    (folder / ROSTER_FILE).unlink()
    assert cli.main(["roster", "show", str(folder)]) == cli.EXIT_BAD_REQUEST
    require_mentions(capsys.readouterr().err, ROSTER_FILE)


def test_a_status_without_a_broker_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is wrong with the request, so the exit code is 1."""
    monkeypatch.setattr(connect, "LISTEN_WITHIN_S", 0.2)
    folder = make_federation(tmp_path / "fed").folder
    assert cli.main(["status", str(folder)]) == cli.EXIT_FAILED
    assert f"veilsum broker {folder}" in capsys.readouterr().err


def test_a_measured_round_that_fails_says_why_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("bench", "rounds", "--scheme", "plain", "--parties", "3", "--dim", "8", "--drop", "3")
    assert cli.main(arguments) == cli.EXIT_FAILED
    error = capsys.readouterr().err
    assert AbortReason.COHORT_TOO_SMALL.value in error
    assert "RunFailed" not in error


@pytest.mark.parametrize("wrong", [("--model", "nomodel"), ("--device", "cuda:99")])
def test_a_model_or_device_that_is_not_there_is_a_wrong_request(wrong: tuple[str, str]) -> None:
    assert cli.main(["simulate", "--scheme", "plain", "--task", "digits", *wrong]) == 2
