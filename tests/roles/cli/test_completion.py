"""What a shell completes is what the commands take."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from veilsum.roles.cli import main as cli
from veilsum.roles.cli.completion import FILE_METAVARS, FOLDER_METAVARS, completion_script
from veilsum.roles.cli.exit_codes import EXIT_BAD_REQUEST
from veilsum.roles.cli.table import HELP, Command, Parser
from veilsum.roles.commands.prepare.completion import SHELLS

ASK = (
    'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_veilsum; printf "%s\\n" "${COMPREPLY[@]}"'
)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "veilsum.bash"
    path.write_text(completion_script("bash", "veilsum", cli.COMMANDS))
    return path


def completed(script: Path, folder: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    command = ["bash", "--norc", "-c", ASK, str(script), "veilsum", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def commands_below(
    commands: Sequence[Command], before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Command]]:
    for command in commands:
        words = (*before, command.name)
        yield words, command
        yield from commands_below(getattr(command.load(), "COMMANDS", ()), words)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("lau",), {"launch"}),
        (("roster", "ob"), {"observer"}),
        (("help", "ro"), {"roster"}),
        (("simulate", "--rou"), {"--rounds"}),
        (("simulate", "--scheme", "m"), {"masked", "mpc"}),
        (("simulate", "--task", "dig"), {"digits"}),
        (("simulate", "--threat", "se"), {"semi-honest"}),
        (("bench", "rounds", "--scheme", "am"), {"ampc"}),
        (("audit", "run", "--attack", "spn"), {"spn-adaptive"}),
        (("audit", "run", "--adversary", "coa"), {"coalition"}),
        (("completion", ""), set(SHELLS)),
        (("simulate", "--json", "out"), {"out.json", "outside"}),
        (("launch", "out"), {"outside"}),
        (("init", "fed", "--task", "./ta"), {"./task.py"}),
        (("server", "--key", "out"), {"outside"}),
    ],
    ids=lambda words: " ".join(sorted(words) if isinstance(words, set) else words),
)
def test_bash_completes_a_line(
    words: tuple[str, ...], offered: set[str], script: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    for name in ("out.json", "task.py", "task.txt"):
        (tmp_path / name).touch()
    assert completed(script, tmp_path, *words) == offered


def test_bash_completes_every_command_and_every_option_of_it(script: Path, tmp_path: Path) -> None:
    text = script.read_text()
    tables = {(): {HELP, *(command.name for command in cli.COMMANDS)}}
    for words, command in commands_below(cli.COMMANDS):
        home = command.load()
        if hasattr(home, "COMMANDS"):
            tables[words] = {inner.name for inner in home.COMMANDS} | {HELP}
            continue
        parser = Parser("", "")
        home.add_arguments(parser)
        (line,) = (
            line
            for line in text.splitlines()
            if line.startswith(f"_shtab_veilsum_{'_'.join(words).replace('-', '_')}_option_strings=")
        )
        offered = set(line.partition("(")[2].rstrip(")").split())
        assert offered == {option for action in parser._actions for option in action.option_strings}
    for words, names in tables.items():
        assert completed(script, tmp_path, *words, "") >= names


def test_every_argument_that_is_a_path_says_so_in_its_metavar() -> None:
    """By it a shell knows when to complete files, and when folders."""
    for words, command in commands_below(cli.COMMANDS):
        home = command.load()
        if hasattr(home, "COMMANDS"):
            continue
        parser = argparse.ArgumentParser()
        home.add_arguments(parser)
        strange = [
            action.dest
            for action in parser._actions
            if action.type is Path and action.metavar not in (*FILE_METAVARS, *FOLDER_METAVARS)
        ]
        assert not strange, words


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_every_shell_knows_commands_options_and_names(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(
        word in text for word in ("launch", "first-model", "differencing", "bilateral", "spn-adaptive")
    )


def test_a_shell_that_is_not_known_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "basch"]) == EXIT_BAD_REQUEST
    assert "bash?" in capsys.readouterr().err


def test_the_attacks_that_are_completed_are_those_that_exist() -> None:
    from veilsum.simulations.attacks.registry import ATTACKS
    from veilsum.simulations.commands.audit import names

    assert set(names.ATTACKS) == set(ATTACKS)
