"""How a command that could not begin, or was stopped before it did, says so: one line, in the form asked for.

People read `veilsum: error: ...`. A role that was told `--log-format json` has readers that parse each line, from the
first on, so there the line is a fact like those of `roles/monitor/log.py`: `start_failed` with reason, culprit, detail
and exit code, or `stopped`. The form is read off the words of the command line, because it must be known before they
are parsed, and when they cannot be.

Implements specs/guide.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from veilsum.roles.process.clock import told_time
from veilsum.transport.printable import json_text, printable

ERROR = "veilsum: error: "
_FORMAT = "--log-format"
_NAME = "--name"
_SERVER = "server"
_HOST = "host"
"""The command that is broker and server in one."""


def failure_line(arguments: Sequence[str], error: BaseException, message: str, exit_code: int) -> str:
    """Why the command with these words came to nothing."""
    if not _wants_json(arguments):
        return _for_people(message)
    party = _party(arguments)
    culprit = str(getattr(error, "culprit", "") or party)
    reason = type(error.__cause__ or error).__name__
    return _fact(party, "start_failed", reason=reason, culprit=culprit, detail=message, exit_code=exit_code)


def stopped_line(arguments: Sequence[str], exit_code: int) -> str:
    """That a signal came before there was anything to stop."""
    if not _wants_json(arguments):
        return _for_people("interrupted")
    return _fact(_party(arguments), "stopped", text="before the run began", exit_code=exit_code)


def _for_people(message: str) -> str:
    return f"{ERROR}{printable(' '.join(message.split()))}"


def _fact(party: str, fact: str, **fields: Any) -> str:
    return json_text({"at": told_time(), "party": party, "fact": fact, **fields})


def _wants_json(arguments: Sequence[str]) -> bool:
    return _value(arguments, _FORMAT) == "json"


def _party(arguments: Sequence[str]) -> str:
    return _value(arguments, _NAME) or (_SERVER if arguments[:1] in ([_SERVER], [_HOST]) else "?")


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """What a flag is given, last one first, as argparse reads it."""
    after = [value for one, value in pairwise(arguments) if one == flag]
    joined = [one.partition("=")[2] for one in arguments if one.startswith(f"{flag}=")]
    return next(iter([*joined[-1:], *after[-1:]]), None)
