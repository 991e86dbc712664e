"""Accuracy against leakage for several defences: PPC curves and their averages (CAP).

    veilsum audit ppc --defence dp,ppdl:share=0.05,ppdl:share=0.3,spn --scale quick --html ppc.html

For each defence the published range of its parameter is walked; each point trains a federation for its accuracy and
attacks single images, naively and with knowledge of the defence. CAP is given as the paper prints it (unbounded
error, every method on its own grid) and in the form that can be compared (capped, on a common grid).

    veilsum audit ppc --scale smoke --seed 7 --markdown specs/figures/ppc.md
"""

from __future__ import annotations

import argparse

from veilsum.simulations.commands.audit.options import (
    add_common_arguments,
    add_markdown_option,
    command_line,
    publish_ppc,
    require_targets,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--defence",
        default="dp,ppdl:share=0.05,ppdl:share=0.3,spn",
        metavar="LIST",
        help="defences with commas between, without the parameter that is walked (default %(default)s)",
    )
    add_common_arguments(parser)
    add_markdown_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.audit.pool import default_workers
    from veilsum.simulations.audit.report.markdown import (
        CURVES,
        curve_figures,
        replace_figures,
        require_marks,
    )
    from veilsum.simulations.audit.report.summary import summary_of_curves
    from veilsum.simulations.audit.scales import find_scale
    from veilsum.simulations.audit.sweeps.ppc import cap_table, measure, point_table, undefended_accuracy

    names = [name.strip() for name in args.defence.split(",") if name.strip()]
    require_targets(args)
    page = require_marks(args.markdown, CURVES) if args.markdown is not None else None
    outcome = measure(
        names,
        find_scale(args.scale),
        args.seed,
        args.task,
        args.data,
        progress=True,
        workers=args.workers or default_workers(),
    )
    if page is not None and not outcome.interrupted:
        notes = [] if outcome.undefended is None else [undefended_accuracy(outcome.undefended)]
        tables = [point_table(outcome), cap_table(outcome)]
        said = summary_of_curves(outcome, args.task)
        replace_figures(page, curve_figures(command_line(), tables, notes, said), CURVES)
    return publish_ppc(outcome, args)
