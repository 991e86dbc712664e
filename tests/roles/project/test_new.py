"""`veilsum new`: a study that runs as it is, whose code is clean, and that never touches what is there."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.refusals import require_mentions
from veilsum.roles.broker.ports import free_port
from veilsum.roles.cli.main import main
from veilsum.roles.federation import private_files
from veilsum.roles.federation.folder import load_federation

COMMANDS = "veilsum new mystudy && cd mystudy && veilsum simulate federation.toml && veilsum launch ."
"""What the README and the help promise, to the letter."""
WITHIN_S = 280.0


def in_a_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line as a person types it, with the `veilsum` of this environment and none of what pytest sets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    path = os.pathsep.join((str(Path(sys.executable).parent), kept["PATH"], "/usr/sbin"))
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**kept, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@needs_mosquitto
def test_the_promised_line_makes_simulates_and_launches_a_study_with_one_and_the_same_model(
    tmp_path: Path,
) -> None:
    done = in_a_shell(COMMANDS, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, simulated, launched = [line.split()[-1] for line in done.stdout.splitlines() if "sha256" in line]
    assert simulated == launched
    accuracies = [line.split()[-1] for line in done.stdout.splitlines() if "accuracy  " in line]
    accuracies += [line.split()[-1] for line in done.stdout.splitlines() if "final test accuracy" in line]
    assert accuracies[0] == accuracies[1]
    assert float(accuracies[0]) > 0.7


def test_the_tests_of_a_new_study_pass_and_print_nothing_else(tmp_path: Path) -> None:
    assert main(["new", str(tmp_path / "mystudy")]) == 0
    done = in_a_shell("pytest -q", tmp_path / "mystudy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "warning" not in done.stdout
    assert "6 passed" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["plain", "mpc", "ampc", "perturbed", "bilateral"])
def test_a_study_of_every_scheme_runs_and_passes_its_tests(tmp_path: Path, scheme: str) -> None:
    line = COMMANDS.replace("mystudy &&", f"mystudy --scheme {scheme} --parties ann,bob,eve,joe &&", 1)
    done = in_a_shell(f"{line} && pytest -q", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_code_of_a_new_study_is_as_ruff_wants_it_and_as_the_house_does(tmp_path: Path) -> None:
    study = tmp_path / "mystudy"
    assert main(["new", str(study)]) == 0
    rules = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert ruff is not None
    chosen = ["--select", ",".join(rules["select"]), "--ignore", ",".join(rules["ignore"])]
    for words in (["check", "--isolated", *chosen], ["format", "--isolated", "--check"]):
        done = subprocess.run([ruff, *words, "."], cwd=study, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_party_has_rows_of_its_own_and_git_sees_no_secret(tmp_path: Path) -> None:
    study = tmp_path / "mystudy"
    assert main(["new", str(study), "--parties", "ann,bob,eve,joe", "--broker-port", "9000"]) == 0
    loaded = load_federation(study)
    rows = {(study / "data" / name / "train.csv").read_text() for name in loaded.config.parties}
    assert len(rows) == 4
    assert loaded.config.broker_port == 9000
    subprocess.run(["git", "init", "-q", str(study)], check=True, capture_output=True)
    listed = subprocess.run(
        ["git", "-C", str(study), "ls-files", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {Path(one).parts[0] for one in listed.stdout.splitlines()} == {
        *(".gitignore", "README.md", "federation.toml", "first-models", "pytest.ini", "roster.json"),
        *("task.py", "test_task.py", "first-model.safetensors"),
    }


def test_a_study_is_simulated_by_its_folder_and_a_name_of_two_words_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my study"]) == 0
    assert "cd 'my study'" in capsys.readouterr().out
    assert main(["simulate", "my study", "--rounds", "1"]) == 0


def test_rows_that_cannot_be_read_make_a_signature_a_wrong_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mystudy"
    assert main(["new", str(folder)]) == 0
    (folder / "data/p1/train.csv").write_text("age;ill\n40;no\n")
    with (folder / "task.py").open("a") as file:
        file.write("# changed\n")
    before = (folder / "roster.json").read_bytes()
    assert main(["roster", "sign", str(folder)]) == 2
    require_mentions(capsys.readouterr().err, "model", "train.csv")
    assert (folder / "roster.json").read_bytes() == before


def test_a_folder_with_anything_in_it_is_refused_without_advice_to_remove_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    before = contents(tmp_path)
    assert main(["new", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    require_mentions(said, tmp_path, "empty")
    assert "rm " not in said
    assert "remove" not in said
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scheme", "nonsense"], "'nonsense' masked"),
        (["--parties", "0"], "parties 0"),
        (["--parties", "ann,ann,bob"], "ann"),
        (["--parties", "1"], "min_parties"),
        (["--parties", "observer-1,ann,bob"], "observer-1"),
        (["--broker-port", "0"], "broker_port"),
    ],
)
def test_a_study_that_cannot_work_is_refused_and_nothing_of_it_is_left(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", str(tmp_path / "mystudy"), *words]) == 2
    require_mentions(capsys.readouterr().err, *says.split())
    assert not (tmp_path / "mystudy").exists()


def test_a_port_that_is_taken_is_not_the_brokers() -> None:
    import socket

    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8883))
            taken.listen()
        except OSError:
            pass  # Somebody else listens there, which serves as well.
        assert free_port(8883) not in (0, 8883)


def test_a_disk_without_room_is_told_with_the_file_that_it_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is left behind."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(private_files.os, "fsync", full)
    assert main(["new", str(tmp_path / "st")]) != 0
    said = capsys.readouterr().err
    require_mentions(said, tmp_path / "st" / "task.py", "space")
    assert "standard output" not in said
    assert not (tmp_path / "st").exists()
