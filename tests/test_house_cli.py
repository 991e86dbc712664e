"""The command line: quick help, one-line errors, documented exit codes, JSON where it belongs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.refusals import require_mentions
from veilsum import __version__
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.cli import main as cli
from veilsum.roles.cli.table import Command

PLAN = ["plan", "--parties", "100", "--max-weight", "1000", "--clip", "8", "--bits", "64"]


def every_command(
    commands: Sequence[Command] = cli.COMMANDS, before: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """All commands and sub-commands, as their words on the command line."""
    for command in commands:
        words = (*before, command.name)
        yield words
        yield from every_command(getattr(command.load(), "COMMANDS", ()), words)


ALL_HELP = [(), *every_command()]


def run_in_fresh_interpreter(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\n"
        "from veilsum.roles.cli.main import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "sys.stderr.write('loaded: ' + ' '.join(sys.modules))\n"
        "sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", ALL_HELP, ids=" ".join)
def test_every_help_answers_without_loading_torch_or_numpy(words: tuple[str, ...]) -> None:
    done = run_in_fresh_interpreter(*words, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {' '.join(('veilsum', *words))}")
    loaded = set(done.stderr.partition("loaded: ")[2].split())
    assert "veilsum.roles.cli.main" in loaded
    assert not {"torch", "numpy", "cryptography", "rich", "hypothesis"} & loaded


def test_help_names_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command.name in text and command.summary in text for command in cli.COMMANDS)
    assert all(f"\n  {code} " in text for code in (0, 1, 2, 130))


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "Exit codes:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("help", ""),
        ("help plan", "plan"),
        ("help roster", "roster"),
        ("roster help", "roster"),
        ("help roster add", "roster add"),
        ("roster help add", "roster add"),
    ],
)
def test_help_before_words_is_the_help_of_these_words(
    asked: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for line in (asked.split(), [*words.split(), "--help"]):
        with contextlib.suppress(SystemExit):
            assert cli.main(line) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert told[0].startswith(f"usage: veilsum {words}".rstrip())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"veilsum {__version__}\n"


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "veilsum", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"veilsum {__version__}\n"


def test_python_dash_m_beside_a_clone_is_the_same_command(tmp_path: Path) -> None:
    """A folder of that name without `__init__.py`, and folders in it named as rooms of ours, are not the package."""
    (tmp_path / "veilsum" / "veilsum").mkdir(parents=True)
    (tmp_path / "veilsum" / "roles").mkdir()
    command = [sys.executable, "-m", "veilsum", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"veilsum {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plna"], "plan?"),
        (["hepl"], "help?"),
        (["help", "lauch"], "launch?"),
        (["roster", "ad"], "add?"),
        (["help", "roster", "ad"], "add?"),
        (["simulate", "--rouds", "3"], "--rouds --rounds?"),
        (["simulate", "--rouds=3"], "--rouds --rounds?"),
        (["plan", "--partes", "100"], "--partes --parties?"),
        (["simulate", "--threat", "lyng"], "--threat lyng semi-honest lying?"),
        (["simulate", "--compare", "plian"], "--compare plian central plain?"),
        (["simulate", "--scheme", "maskd"], "maskd masked?"),
        (["simulate", "--task", "digit"], "digit digits?"),
        (["simulate", "--defence", "dpp"], "dpp dp?"),
        (["simulate", "--model", "lenet"], "lenet lenet5?"),
        (["simulate", "--graph", "rign"], "rign ring?"),
        (["simulate", "--task", "vectors:8", "--drop", "1@uplaod"], "1@uplaod upload?"),
        (["simulate", "--task", "vectors:8", "--faults", "drp=0.1"], "drp=0.1 drop?"),
        (["simulate", "--task", "vectors:8", "--lie", "server:shft"], "server:shft server:shift"),
        (["audit", "run", "--attack", "idlgg"], "idlgg idlg?"),
        (["audit", "run", "--adversary", "servr"], "servr server?"),
        (["audit", "run", "--scale", "smok"], "smok smoke?"),
        (["bench", "rounds", "--scheme", "maskd"], "maskd masked?"),
        (["zzz"], "simulate bench"),
        (["bench", "zzz"], "bench zzz"),
        (["plan"], "--parties --max-weight --clip --help"),
        (["plan", "--parties", "many"], "--parties many"),
        ([*PLAN, "--colour"], "--colour"),
        ([*PLAN, "--json", "/no/such/folder/x.json"], "/no/such/folder create"),
        (
            ["plan", "--parties", "0", "--max-weight", "0", "--clip", "nan"],
            "parties 1 0",
        ),
        (
            ["plan", "--parties", "100", "--max-weight", "1000", "--clip", "1e9", "--bits", "32"],
            "64 bits",
        ),
        (["plan", "--parties", "100", "--max-weight", "1000", "--clip", "1e19"], "lower clip"),
    ],
)
def test_a_request_that_cannot_work_exits_with_2_and_one_line_that_says_what_to_change(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("veilsum: error: ")
    assert printed.err.count("\n") == 1
    require_mentions(printed.err, *says.split())


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ParameterError(["a", "b"]), 2, "a; b"),
        (LocalProtocolError("no"), 1, "no"),
        (FileNotFoundError(2, "No such file", "model.bin"), 1, "model.bin: No such file"),
        (
            RuntimeError("two\nlines"),
            1,
            "unexpected RuntimeError: two lines (VEILSUM_TRACEBACK=1 shows where)",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_every_kind_of_failure_has_its_exit_code_and_one_line(
    error: BaseException,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.delenv("VEILSUM_TRACEBACK", raising=False)
    monkeypatch.setattr(cli, "run_table", fail)
    assert cli.main(["plan"]) == code
    assert capsys.readouterr().err == f"veilsum: error: {says}\n"


def test_the_traceback_is_there_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILSUM_TRACEBACK", "1")
    with pytest.raises(ParameterError):
        cli.main(["plan", "--parties", "0", "--max-weight", "1", "--clip", "1"])


def test_plan_prints_bits_headroom_and_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(PLAN) == 0
    lines = {
        line.rsplit(maxsplit=1)[0].strip(): line.split()[-1]
        for line in capsys.readouterr().out.splitlines()
        if line
    }
    assert lines["fractional bits that fit"] == "53"
    assert lines["fractional bits used"] == "40"
    assert lines["headroom, bits"] == "13.36"
    assert float(lines["error of the mean, every party with 1000 samples"]) < 1e-11


def test_json_on_standard_output_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*PLAN, "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["planned_fractional_bits"] == 53
    require_mentions(printed.err, "fractional", 53)


def test_json_in_a_file_leaves_the_table_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "plan.json"
    assert cli.main([*PLAN, "--json", str(target)]) == 0
    assert json.loads(target.read_text())["fractional_bits"] == 40
    assert "fractional bits that fit" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [target]
