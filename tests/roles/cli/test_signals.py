"""Signals and failures before a role has begun: one line in the form asked for, and the documented exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.refusals import require_mentions
from veilsum.roles.cli.failure import failure_line, stopped_line

AT_AN_IMPORT = """
import os, sys
from importlib.abc import MetaPathFinder

class Signalling(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Signalling())
from veilsum.roles.cli.start import main
sys.argv = ["veilsum", *{words!r}]
sys.exit(main())
"""


def told_by(words: list[str], module: str, which: signal.Signals) -> tuple[int, str]:
    """Exit code and lines of a command that a signal reaches when it imports a module."""
    code = AT_AN_IMPORT.format(module=module, number=int(which), words=words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "which"),
    [
        ("veilsum.roles.cli.main", signal.SIGTERM),
        ("veilsum.roles.commands.run.role", signal.SIGINT),
        ("numpy", signal.SIGHUP),
        ("veilsum.roles.process.driver", signal.SIGINT),
        ("veilsum.roles.process.driver", signal.SIGTERM),
    ],
)
def test_a_signal_in_the_middle_of_an_import_ends_a_role_with_one_line_and_130(
    module: str, which: signal.Signals, tmp_path: Path
) -> None:
    words = ["client", str(tmp_path / "federation.toml"), "--name", "p1", "--log-format", "json"]
    code, lines = told_by(words, module, which)
    assert code == 130
    fact = json.loads(lines)
    assert (fact["party"], fact["fact"], fact["exit_code"]) == ("p1", "stopped", 130)


def test_a_signal_interrupts_an_ordinary_command_in_words() -> None:
    words = ["plan", "--parties", "3", "--max-weight", "1", "--clip", "1"]
    for which in (signal.SIGTERM, signal.SIGHUP):
        assert told_by(words, "numpy", which) == (130, "veilsum: error: interrupted\n")


def test_a_hangup_that_the_caller_switched_off_ends_nothing() -> None:
    code = AT_AN_IMPORT.format(module="numpy", number=int(signal.SIGHUP), words=["--version"])
    ignoring = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{code}"
    done = subprocess.run([sys.executable, "-c", ignoring], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flag", [["--log-format", "json"], ["--log-format=json"]])
def test_a_failed_start_is_a_fact_where_lines_are_json(flag: list[str], tmp_path: Path) -> None:
    """Reason, culprit, detail and exit code, alone on standard error; also when the words themselves are wrong."""
    missing = str(tmp_path / "federation.toml")
    for words, reason in (
        (["peer", missing, "--name", "p1", *flag], "ParameterError"),
        (["peer", missing, "--name", "p1", *flag, "--nonsense"], "UsageError"),
        (["server", missing, *flag], "ParameterError"),
    ):
        command = [sys.executable, "-m", "veilsum", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        fact = json.loads(done.stderr)
        party = "server" if words[0] == "server" else "p1"
        assert (fact["party"], fact["culprit"], fact["fact"]) == (party, party, "start_failed")
        assert (fact["reason"], fact["exit_code"], done.returncode) == (reason, 2, 2)
        assert fact["detail"]


def test_lines_are_for_people_unless_json_was_asked_for() -> None:
    for words in ([], ["client", "--log-format", "text"], ["--log-format"]):
        assert failure_line(words, ValueError("no"), "no\nway", 1) == "veilsum: error: no way"
        assert stopped_line(words, 130) == "veilsum: error: interrupted"
    require_mentions(
        failure_line(["--log-format=json"], ValueError("no"), "no", 1), "ValueError", "start_failed"
    )
