"""The audit as a check in CI: an exit code of its own when something leaks that nobody accepted.

A leak is a verdict, so that the thresholds of specs/measures.md decide and no second set of them. What could not be
judged is no success: a row without a number, a batch that could not be attacked, or a finding on a recorded view, of
which no truth is known, ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.exit_codes import EXIT_FAILED, EXIT_LEAKS, EXIT_OK
from veilsum.transport.printable import printable

if TYPE_CHECKING:
    from veilsum.simulations.audit.report.verdicts import Verdict
    from veilsum.simulations.audit.rows.row import Row
    from veilsum.simulations.audit.runner import Outcome

ANY_CASE, IN_A_BATCH = "leaks", "batch-leaks"


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        choices=(ANY_CASE, IN_A_BATCH),
        help="end with exit code 3 if a verdict is LEAKS: any verdict, or those of a realistic batch and of what no "
        "batch changes, as members; images attacked in the worst case only, as `all` does under a defence in training, "
        "are not judged, and their cells are named; 1 if something could not be judged",
    )
    parser.add_argument(
        "--accept",
        metavar="NAME",
        action="append",
        help="a leak that --fail-on lets pass, as scheme/defence/adversary; * stands for anything (repeat the option)",
    )


def require_gate(args: argparse.Namespace) -> None:
    """Refuse before the work what would let a leak pass by mistake."""
    for name in args.accept or ():
        if name.count("/") != 2 or not all(name.split("/")):
            raise ParameterError(
                [
                    f"--accept {name} names no verdict: write scheme/defence/adversary, such as masked/none/server"
                ]
            )
    if args.accept and args.fail_on is None:
        raise ParameterError(["--accept lets leaks pass that --fail-on stops at: add --fail-on leaks"])


def gate(outcome: Outcome, args: argparse.Namespace) -> int:
    """The exit code, with the reason on standard error."""
    from veilsum.simulations.audit.report.verdicts import LEAKS, of_batches, unjudged, verdicts, worst_only

    if args.fail_on is None:
        return EXIT_OK
    found = verdicts(outcome.rows)
    leaks = [one for one in found if one.word == LEAKS]
    counted = found if args.fail_on == ANY_CASE else verdicts(of_batches(outcome.rows))
    stopped = [one for one in counted if one.word == LEAKS and not _accepted(one, args.accept or ())]
    if args.fail_on == IN_A_BATCH and worst_only(found):
        _say(
            f"images in the worst case only, of which {IN_A_BATCH} says nothing: {', '.join(worst_only(found))}"
        )
    for name in args.accept or ():
        if not any(fnmatchcase(one.name, name) for one in leaks):
            _say(f"--accept {name} was not needed: nothing of that name leaks")
    for one in stopped:
        _say(f"leaks: {one.name}, {one.case}: {one.reason}")
    if stopped:
        return EXIT_LEAKS
    problems = [f"{row.attack} on {row.target} {_lacking(row)}" for row in unjudged(outcome.rows)]
    problems += outcome.failed if counted else ["nothing was judged"]
    for problem in problems:
        _say(f"not judged: {problem}")
    return EXIT_FAILED if problems else EXIT_OK


def _lacking(row: Row) -> str:
    if not row.recorded:
        return "gave no number"
    return "has no truth to be judged by, since the view is a recorded one"


def _accepted(one: Verdict, names: Sequence[str]) -> bool:
    return any(fnmatchcase(one.name, name) for name in names)


def _say(text: str) -> None:
    sys.stderr.write(f"veilsum: {printable(text)}\n")
