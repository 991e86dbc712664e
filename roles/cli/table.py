"""A table of commands: names to modules, imported only when chosen.

`veilsum --help` must answer at once, so the table knows a command by one line of text and the name of its
module. The module is imported when the command is asked for, and brings

    __doc__                  what `--help` of the command says
    add_arguments(parser)    the options; must import nothing heavy, so that `--help` stays quick
    run(args) -> int         the exit code; imports what it needs inside

or, for a command with sub-commands, `COMMANDS`: another table. A file that serves several commands holds an object
for each, named `module:object`, which brings the same, its help text as `description`. Modules are named, not
imported, also because roles must not import simulations, and some commands live there.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

HELP_FLAGS = ("-h", "--help")


class UsageError(Exception):
    """The command line asks for something that does not exist; the text says what does."""


@dataclass(frozen=True)
class Command:
    """One line of the table; `home` is the module, or `module:object`, that brings the command."""

    name: str
    group: str
    summary: str
    home: str

    def load(self) -> Any:
        """What brings the command, imported now."""
        module, _, name = self.home.partition(":")
        found = importlib.import_module(module)
        return getattr(found, name) if name else found


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, raised to the one place that prints them."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def run_table(
    prog: str, commands: Sequence[Command], description: str, closing: str, arguments: Sequence[str]
) -> int:
    """Run the command that the arguments name, or show the table."""
    if not arguments or arguments[0] in HELP_FLAGS:
        sys.stdout.write(table_help(prog, commands, description, closing))
        return 0
    command = _find(prog, commands, arguments[0])
    home = command.load()
    text = textwrap.dedent(getattr(home, "description", home.__doc__) or command.summary).strip()
    inner = f"{prog} {command.name}"
    if hasattr(home, "COMMANDS"):
        return run_table(inner, home.COMMANDS, text, "", arguments[1:])
    parser = Parser(inner, text)
    home.add_arguments(parser)
    return int(home.run(parser.parse_args(arguments[1:])))


def table_help(prog: str, commands: Sequence[Command], description: str, closing: str) -> str:
    width = max(len(command.name) for command in commands)
    lines = [f"usage: {prog} COMMAND [options]", "", description]
    for group in dict.fromkeys(command.group for command in commands):
        lines += ["", f"{group}:"]
        lines += [f"  {c.name:<{width}}  {c.summary}" for c in commands if c.group == group]
    lines += ["", f"`{prog} COMMAND --help` explains a command."]
    if closing:
        lines += ["", closing]
    return "\n".join(lines) + "\n"


def _find(prog: str, commands: Sequence[Command], name: str) -> Command:
    by_name = {command.name: command for command in commands}
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(by_name)}"
    raise UsageError(f"{prog} has no command {name!r}: {remedy}")
