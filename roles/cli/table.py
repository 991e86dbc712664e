"""A table of commands: names to modules, imported only when chosen.

`veilsum --help` must answer at once, so the table knows a command by one line of text and the name of its
module. The module is imported when the command is asked for, and brings

    __doc__                  what `--help` of the command says
    add_arguments(parser)    the options; must import nothing heavy, so that `--help` stays quick
    run(args) -> int         the exit code; imports what it needs inside

or, for a command with sub-commands, `COMMANDS`: another table. A file that serves several commands holds an object
for each, named `module:object`, which brings the same, its help text as `description`. Modules are named, not
imported, also because roles must not import simulations, and some commands live there.

Every table also answers to `help`: `veilsum help roster add` is `veilsum roster add --help`.

A command is interrupted by signals as by Ctrl-C; one that says `stops_in_order = True` takes them over when it has
something to stop, and is ended at once by any before that (roles/cli/signals.py).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from veilsum.roles.cli.signals import interruptible
from veilsum.roles.config.spelling import did_you_mean, which_then

HELP_FLAGS = ("-h", "--help")
HELP = "help"


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
    """argparse with one-line errors, raised to the one place that prints them.

    It knows the table that its command stands in, for a command that is about all commands.
    """

    def __init__(self, prog: str, description: str, table: Sequence[Command] = ()) -> None:
        self.table = tuple(table)
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments, once all options are known: a misspelt one is told before those that are then missing."""
        known = self._option_string_actions
        for word in _options_in(sys.argv[1:] if args is None else args):
            if word not in known and not self._negative_number_matcher.match(word):
                self.error(f"{self.prog} has no option {word}{did_you_mean(word, known)}")
        return super().parse_known_args(args, namespace)

    def print_help(self, file: Any = None) -> None:
        """argparse itself says nothing of a disk that is full."""
        (file or sys.stdout).write(self.format_help())

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = ", ".join(map(str, action.choices))
            near = did_you_mean(str(value), action.choices)
            raise argparse.ArgumentError(action, f"{value!r} is not one of {known}{near}")


def run_table(
    prog: str, commands: Sequence[Command], description: str, closing: str, arguments: Sequence[str]
) -> int:
    """Run the command that the arguments name, or show the table."""
    if arguments and arguments[0] == HELP:
        arguments = [*arguments[1:], HELP_FLAGS[-1]]
    if not arguments or arguments[0] in HELP_FLAGS:
        sys.stdout.write(table_help(prog, commands, description, closing))
        return 0
    command = _find(prog, commands, arguments[0])
    home = command.load()
    text = textwrap.dedent(getattr(home, "description", home.__doc__) or command.summary).strip()
    inner = f"{prog} {command.name}"
    if hasattr(home, "COMMANDS"):
        return run_table(inner, home.COMMANDS, text, "", arguments[1:])
    parser = Parser(inner, text, commands)
    home.add_arguments(parser)
    args = parser.parse_args(arguments[1:])
    if getattr(home, "stops_in_order", False):
        return int(home.run(args))
    with interruptible():
        return int(home.run(args))


def table_help(prog: str, commands: Sequence[Command], description: str, closing: str) -> str:
    width = max(len(command.name) for command in commands)
    lines = [f"usage: {prog} COMMAND [options]", "", description]
    for group in dict.fromkeys(command.group for command in commands):
        lines += ["", f"{group}:"]
        lines += [f"  {c.name:<{width}}  {c.summary}" for c in commands if c.group == group]
    lines += ["", f"`{prog} help COMMAND` explains a command, as `{prog} COMMAND --help` does."]
    if closing:
        lines += ["", closing]
    return "\n".join(lines) + "\n"


def _find(prog: str, commands: Sequence[Command], name: str) -> Command:
    by_name = {command.name: command for command in commands}
    if name in by_name:
        return by_name[name]
    raise UsageError(f"{prog} has no command {name!r}: {which_then(name, (*by_name, HELP))}")


def _options_in(arguments: Sequence[str]) -> Iterator[str]:
    """The words that argparse takes for options, without the values joined to them; behind `--` there are none."""
    for word in arguments:
        if word == "--":
            return
        if len(word) > 1 and word.startswith("-") and " " not in word:
            yield word.partition("=")[0]
