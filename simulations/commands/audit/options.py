"""Options that the audit commands share, and where their results go."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.exit_codes import EXIT_INTERRUPTED
from veilsum.roles.cli.output import STANDARD_OUTPUT, add_json_option, file_target, publish
from veilsum.roles.cli.output_file import require_writable
from veilsum.simulations.commands.audit.gate import gate

if TYPE_CHECKING:
    from veilsum.simulations.audit.report.page import Section
    from veilsum.simulations.audit.runner import Outcome
    from veilsum.simulations.audit.sweeps.ppc import PpcOutcome

MOST_WORKERS = 256


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="digits", metavar="TASK", help="what is learned (default digits)")
    parser.add_argument("--data", metavar="FOLDER", help="folder with the data, for tasks that need one")
    parser.add_argument(
        "--scale",
        default="smoke",
        choices=("smoke", "quick", "full"),
        help="how much work: smoke to see that it runs, full to say something (default smoke)",
    )
    parser.add_argument(
        "--seed", type=int, default=7, metavar="N", help="everything follows from it (default 7)"
    )
    parser.add_argument(
        "--workers",
        type=worker_count,
        metavar="N",
        help="processes that share the work; results do not depend on it (default: as many as there are cores)",
    )
    add_json_option(parser)
    parser.add_argument("--html", metavar="FILE", type=file_target, help="also write a report with pictures")


def add_markdown_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="also put the figures between the marks of this page"
    )


def worker_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 to {MOST_WORKERS}")
    return int(text)


def require_targets(args: argparse.Namespace) -> None:
    """Refuse before the work a file that could not be written after it."""
    named = {name: getattr(args, name, None) for name in ("json", "html", "markdown", "save_view")}
    for name, target in ((name, Path(str(one))) for name, one in named.items() if one is not None):
        if str(target) == STANDARD_OUTPUT:
            continue
        try:
            require_writable(target, private=name == "save_view")
        except OSError as error:
            raise ParameterError([f"{target} cannot be written: {error.strerror}"]) from error


def publish_outcome(
    outcome: Outcome,
    title: str,
    args: argparse.Namespace,
    sections: Sequence[Section] = (),
    text: str = "",
    data: str | None = None,
) -> int:
    """Table to the person, JSON to the program, the page to its file; 130 after an interruption, else `--fail-on`."""
    from veilsum.simulations.audit.report.page import Report, write_page
    from veilsum.simulations.audit.report.summary import summary_of
    from veilsum.simulations.audit.report.verdicts import verdicts, warnings
    from veilsum.simulations.audit.rows.row import table

    said = summary_of(outcome.rows, data or args.task)
    notes = [*outcome.notes, *outcome.failed]
    lines = [text] if text else []
    if outcome.rows:
        lines.append(table(outcome.rows, title).render())
    lines += [
        f"{one.scheme}, {one.defence}, {one.adversary}, {one.case}: {one.word.upper()}. {one.reason}"
        for one in verdicts(outcome.rows)
    ]
    lines += [f"warning: {words}" for words in (*warnings(outcome.rows), *notes)]
    lines += ["", *said.lines()]
    if outcome.interrupted:
        lines.append("interrupted: these are the rows that were done")
    command = command_line()
    figures = {"command": command, "scale": args.scale, "summary": said.lines(), **outcome.figures()}
    publish("\n".join(lines) + "\n", figures, args.json)
    if args.html is not None:
        complete = not outcome.interrupted
        report = Report(
            title, command, args.scale, outcome.rows, sections, complete, data or args.task, notes
        )
        write_page(report, args.html)
    return EXIT_INTERRUPTED if outcome.interrupted else gate(outcome, args)


def publish_ppc(outcome: PpcOutcome, args: argparse.Namespace) -> int:
    """The same for PPC curves."""
    from veilsum.simulations.audit.report.curves import sections
    from veilsum.simulations.audit.report.page import Report, write_page
    from veilsum.simulations.audit.report.summary import summary_of_curves
    from veilsum.simulations.audit.sweeps.ppc import cap_table, point_table, undefended_accuracy

    command, complete = command_line(), not outcome.interrupted
    text = "\n".join([point_table(outcome).render(), cap_table(outcome).render()]) if outcome.points else ""
    if outcome.undefended is not None:
        text += f"\n{undefended_accuracy(outcome.undefended)}\n"
    said = summary_of_curves(outcome, args.task)
    text += "\n" + "\n".join(said.lines()) + "\n"
    if not complete:
        text += "interrupted: these are the points that were done\n"
    head = {"command": command, "scale": args.scale, "complete": complete, "summary": said.lines()}
    figures = {**head, **outcome.figures()}
    publish(text, {**figures, "rows": [row.figures() for row in outcome.rows]}, args.json)
    if args.html is not None:
        title = f"Audit: accuracy against leakage, {args.defence}"
        drawn = sections(outcome)
        page = Report(title, command, args.scale, outcome.rows, drawn, complete, args.task, summary=said)
        write_page(page, args.html)
    return 0 if complete else EXIT_INTERRUPTED


def command_line() -> str:
    """What was asked for, without the places that only this machine's results went to."""
    words, shown = iter(sys.argv[1:]), ["veilsum"]
    for word in words:
        if word in ("--json", "--html"):
            next(words, None)
        elif not word.startswith(("--json=", "--html=")):
            shown.append(word)
    return shlex.join(shown)
