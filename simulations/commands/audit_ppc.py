"""Accuracy against leakage for several defences: PPC curves and their averages (CAP).

    veilsum audit ppc --defence dp,ppdl:share=0.05,ppdl:share=0.3,spn --scale quick --html ppc.html

For each defence the published range of its parameter is walked; each point trains a federation for its accuracy and
attacks single images, naively and with knowledge of the defence. CAP is given as the paper prints it (unbounded
error, every method on its own grid) and in the form that can be compared (capped, on a common grid).
"""

from __future__ import annotations

import argparse

from veilsum.simulations.commands.auditing import add_common_arguments, publish_ppc, require_targets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--defence",
        default="dp,ppdl:share=0.05,ppdl:share=0.3,spn",
        metavar="LIST",
        help="defences with commas between, without the parameter that is walked (default %(default)s)",
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.audit.pool import default_workers
    from veilsum.simulations.audit.ppc import measure
    from veilsum.simulations.audit.scales import find_scale

    names = [name.strip() for name in args.defence.split(",") if name.strip()]
    require_targets(args)
    outcome = measure(
        names,
        find_scale(args.scale),
        args.seed,
        args.task,
        args.data,
        progress=True,
        workers=args.workers or default_workers(),
    )
    return publish_ppc(outcome, args)
