"""What a shell completes after `veilsum`: commands, options, names that are known, and files.

The script is made from the table of commands, whose modules are all loaded for it; none of them is heavy. What an
argument takes is read from its `choices`, from names that were offered for it, and else from its metavar: FILE and the
kinds of folders mean paths, and the metavar of a setting means the names that this setting knows.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from veilsum.roles.cli.table import HELP, Command
from veilsum.roles.config.known_names import NAMES_BY_METAVAR

FOLDER_METAVARS = ("DIR", "KEYDIR", "FOLDER")
FILE_METAVARS = ("FILE",)
_OFFERED = "offered"


def offer(action: argparse.Action, names: Iterable[str]) -> None:
    """Say which names an argument knows, besides others that it takes."""
    setattr(action, _OFFERED, tuple(names))


def completion_script(shell: str, prog: str, commands: Sequence[Command]) -> str:
    """The script for one shell; it needs nothing of ours when it runs."""
    import shtab

    return str(shtab.complete(_tree(prog, commands), shell))


def _tree(prog: str, commands: Sequence[Command]) -> argparse.ArgumentParser:
    """The table as one parser with parsers below it: what shtab reads."""
    parser = argparse.ArgumentParser(prog=prog)
    _grow(parser, commands)
    return parser


def _grow(parser: argparse.ArgumentParser, commands: Sequence[Command]) -> None:
    below = parser.add_subparsers()
    for command in commands:
        branch = below.add_parser(command.name, help=command.summary, description=command.summary)
        home = command.load()
        if hasattr(home, "COMMANDS"):
            _grow(branch, home.COMMANDS)
        else:
            home.add_arguments(branch)
            for action in branch._actions:
                _complete(action)
    asked = below.add_parser(HELP, help="explain a command", description="explain a command")
    asked.add_argument("command", choices=[command.name for command in commands])


def _complete(action: argparse.Action) -> None:
    import shtab

    found: Any = None
    if names := getattr(action, _OFFERED, NAMES_BY_METAVAR.get(str(action.metavar), ())):
        found = _names_or_file(names)
    elif action.metavar in FILE_METAVARS:
        found = shtab.FILE
    elif action.metavar in FOLDER_METAVARS:
        found = shtab.DIRECTORY
    if found is not None and action.choices is None:
        action.complete = found  # type: ignore[attr-defined]  # the attribute by which shtab is told


def _names_or_file(names: Sequence[str]) -> dict[str, Any]:
    """Names, and in bash Python files behind a dot or slash: what takes a name often takes ./file.py:Name too."""
    listed = " ".join(names)
    function = f"_veilsum_names_{hashlib.sha256(listed.encode()).hexdigest()[:8]}"
    files = 'compgen -f -X "!*.py" -- "$1"; compgen -d -- "$1"'
    body = f'case "$1" in [./]*) {files};; *) compgen -W "{listed}" -- "$1";; esac'
    return {
        "bash": function,
        "zsh": f"({listed})",
        "fish": listed,
        "preamble": {"bash": f"{function}() {{ {body}; }}"},
    }
