"""Attack every scheme as every adversary, and every defence naively and adaptively.

    veilsum audit all --scale smoke --json all.json --html all.html
    veilsum audit all --scale smoke --markdown specs/figures/audit.md

It also prints which scheme hides and which recovers the local and the global model, as measured, and at the end the
matrix of the threat model: what each adversary gets under each scheme. Smoke scale leaves out
the attacks that train generators or shadow models, and says so. Ctrl-C keeps the rows done so far.
"""

from __future__ import annotations

import argparse

from veilsum.simulations.commands.audit.options import (
    add_common_arguments,
    add_markdown_option,
    command_line,
    publish_outcome,
    require_targets,
)

MODEL_COLUMNS = ("scheme", "adversary", "another party's update", "global model")
MODEL_TITLE = "Who hides and who recovers which model, as measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser)
    add_markdown_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.cli.output import Table
    from veilsum.simulations.audit.matrix import TITLE, condensed
    from veilsum.simulations.audit.pool import default_workers
    from veilsum.simulations.audit.report.markdown import figures, replace_figures, require_marks
    from veilsum.simulations.audit.report.page import Section, matrix
    from veilsum.simulations.audit.rows.asides import asides
    from veilsum.simulations.audit.rows.row import Row
    from veilsum.simulations.audit.runner import run_requests
    from veilsum.simulations.audit.scales import find_scale
    from veilsum.simulations.audit.sweeps.everything import ALL_SCHEMES, all_requests, left_out

    require_targets(args)
    scale = find_scale(args.scale)
    page = require_marks(args.markdown) if args.markdown is not None else None
    requests = all_requests(scale, args.seed, args.task, args.data)
    outcome = run_requests(
        requests,
        progress=True,
        shared=True,
        workers=args.workers or default_workers(),
        also=asides(requests[0], ALL_SCHEMES),
    )
    outcome.rows += [item for item in outcome.others if isinstance(item, Row)]
    models = [item for item in outcome.others if not isinstance(item, Row)]
    outcome.notes += left_out(scale)
    section = Section(MODEL_TITLE, matrix(models, "hides"))
    found = condensed(ALL_SCHEMES, models, outcome.rows)
    outcome.matrix = found.figures()
    shown = Table(TITLE, found.columns, found.lines).render()
    text = "\n".join([Table(MODEL_TITLE, MODEL_COLUMNS, models).render(), shown])
    if page is not None and not outcome.interrupted:
        replace_figures(page, figures(command_line(), outcome.rows, models, outcome.notes))
    return publish_outcome(outcome, f"Audit of everything, scale {scale.name}", args, [section], text)
