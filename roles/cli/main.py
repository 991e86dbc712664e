"""The `veilsum` command: the table of commands, and what becomes of their errors.

A new command is one line in COMMANDS and one file; roles/cli/table.py says what the file brings.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from veilsum import __version__
from veilsum.protocol.errors import ParameterError, ProtocolError
from veilsum.roles.cli import signals
from veilsum.roles.cli.exit_codes import EXIT_BAD_REQUEST, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from veilsum.roles.cli.failure import failure_line, stopped_line
from veilsum.roles.cli.table import Command, UsageError, run_table
from veilsum.transport.errors import BadSetting, TransportError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

COMMANDS = (
    Command(
        "simulate",
        "See it work",
        "a whole federation in this process, on virtual time",
        "veilsum.simulations.commands.simulate",
    ),
    Command(
        "new",
        "Prepare",
        "a study to begin with: task, tests, made-up rows, and a federation that runs",
        "veilsum.roles.commands.prepare.new",
    ),
    Command(
        "plan",
        "Prepare",
        "how many fractional bits fit, and the error they leave",
        "veilsum.roles.commands.prepare.plan",
    ),
    Command(
        "init",
        "Prepare",
        "a complete federation in a new folder: settings, keys, broker",
        "veilsum.roles.commands.prepare.init",
    ),
    Command(
        "completion",
        "Prepare",
        "a script that completes commands and options in your shell",
        "veilsum.roles.commands.prepare.completion",
    ),
    Command(
        "invite",
        "Prepare",
        "invite parties, each with one file and twelve words",
        "veilsum.roles.commands.prepare.invite",
    ),
    Command("keys", "Prepare", "make the keys of a party", "veilsum.roles.commands.prepare.keys"),
    Command("roster", "Prepare", "who belongs to a federation", "veilsum.roles.commands.roster"),
    Command(
        "launch",
        "Run",
        "a whole federation as processes on this machine",
        "veilsum.roles.commands.run.launch",
    ),
    Command(
        "host",
        "Run",
        "broker and server on this machine, for parties elsewhere",
        "veilsum.roles.commands.run.host",
    ),
    Command("join", "Run", "come to a federation by invitation", "veilsum.roles.commands.run.join"),
    Command("broker", "Run", "the message broker of a federation", "veilsum.roles.commands.run.broker"),
    Command("server", "Run", "the server of a federation", "veilsum.roles.commands.run.role:SERVER"),
    Command(
        "client",
        "Run",
        "a party of a plain, masked, perturbed or bilateral federation",
        "veilsum.roles.commands.run.role:CLIENT",
    ),
    Command("peer", "Run", "a party of an mpc or ampc federation", "veilsum.roles.commands.run.role:PEER"),
    Command("status", "Run", "where everyone is, from signed statuses", "veilsum.roles.commands.run.status"),
    Command("page", "Run", "a live page of a run in the browser", "veilsum.roles.commands.run.page"),
    Command(
        "export",
        "Take away",
        "the model a party holds, as safetensors",
        "veilsum.roles.commands.model.export",
    ),
    Command(
        "evaluate",
        "Take away",
        "how good a model is on the test set",
        "veilsum.roles.commands.model.evaluate",
    ),
    Command("bench", "Measure", "cost against its limits", "veilsum.simulations.commands.bench"),
    Command("audit", "Measure", "attack what each party saw", "veilsum.simulations.commands.audit"),
)

DESCRIPTION = """\
Multi-party secure aggregation: parties learn the weighted mean of their vectors, and nobody sees the vector
of another."""

CLOSING = """\
Examples:
  veilsum simulate --scheme ampc --parties 5 --rounds 3 --task digits --seed 7 --compare plain
  veilsum plan --parties 100 --max-weight 1000 --clip 8 --bits 64
  veilsum new mystudy && cd mystudy && veilsum simulate federation.toml && veilsum launch .
  veilsum init fed --scheme ampc --parties 4 --task digits --rounds 3 && veilsum launch fed
  veilsum bench core --json core.json

Every `--json FILE` also writes the figures as JSON; `-` is standard output, and the table then goes to
standard error.

Exit codes:
  0    done
  1    the run failed; the message says why
  2    the request cannot work; the message says what to change
  3    `veilsum audit --fail-on` found a leak
  130  interrupted

VEILSUM_TRACEBACK=1 shows the full traceback of an error. `veilsum --version` prints the version."""


def main(arguments: Sequence[str] | None = None) -> int:
    if arguments is None:
        # The current folder may be a stranger's: no Python that we start has it on its path either.
        os.environ.setdefault("PYTHONSAFEPATH", "1")
        arguments = sys.argv[1:]
        signals.begin(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        sys.stderr.write(f"{stopped_line(arguments, EXIT_INTERRUPTED)}\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`veilsum ... | head`): nothing is left to say, nor to flush.
        _leave_output()
        return EXIT_FAILED
    except Exception as error:
        if os.environ.get("VEILSUM_TRACEBACK") == "1":
            raise
        if _is_full_output(error):
            _leave_output()
        exit_code = _exit_code(error)
        sys.stderr.write(f"{failure_line(arguments, error, _explain(error), exit_code)}\n")
        return exit_code


def _run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--version"]:
        sys.stdout.write(f"veilsum {__version__}\n")
        return EXIT_OK
    try:
        return run_table("veilsum", COMMANDS, DESCRIPTION, CLOSING, arguments)
    except SystemExit as end:
        return int(end.code or 0)  # after `--help` of a command


def _leave_output() -> None:
    """Standard output takes nothing more: the interpreter would try at its end, and end with a code of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_full_output(error: Exception) -> bool:
    """Whether the disk behind standard output is full: all other files are named where they are written."""
    return isinstance(error, OSError) and error.errno in _FULL and not error.filename


def _exit_code(error: Exception) -> int:
    return EXIT_BAD_REQUEST if isinstance(error, (ParameterError, UsageError, BadSetting)) else EXIT_FAILED


def _explain(error: Exception) -> str:
    if isinstance(error, (ProtocolError, TransportError, UsageError)):
        return str(error)
    if isinstance(error, OSError):
        file = "standard output" if _is_full_output(error) else error.filename
        return f"{file}: {error.strerror}" if file else str(error)
    return f"unexpected {type(error).__name__}: {error} (VEILSUM_TRACEBACK=1 shows where)"
