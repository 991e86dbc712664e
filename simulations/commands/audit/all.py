"""Attack every scheme as every adversary, and every defence naively and adaptively.

    veilsum audit all --scale smoke --json all.json --html all.html
    veilsum audit all --scale smoke --markdown specs/figures/audit.md
    veilsum audit all --scale quick --fail-on batch-leaks --accept 'plain/*/*' --accept 'perturbed/*/*'

Every scheme without a defence in training is attacked twice: with one image behind an update, the worst case, and with
a realistic batch of 16. With a defence it is the worst case only, so that `--fail-on batch-leaks` says nothing of
images there.
It also prints which scheme hides and which recovers the local and the global model, as measured, and at the end the
matrix of the threat model: what each adversary gets under each scheme. Smoke scale leaves out
the attacks that train generators or shadow models, and says so. Ctrl-C keeps the rows done so far.
"""

from __future__ import annotations

import argparse

from veilsum.simulations.commands.audit.gate import add_gate_options, require_gate
from veilsum.simulations.commands.audit.options import (
    add_common_arguments,
    add_markdown_option,
    command_line,
    publish_outcome,
    require_targets,
)

MODEL_COLUMNS = ("scheme", "adversary", "another party's update", "global model")
LEARNED = (
    "I is an individual update of someone else, G the global model, samples are training images themselves; empty is "
    "what was not measured."
)
MODEL_TITLE = "Who hides and who recovers which model, as measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser)
    add_markdown_option(parser)
    add_gate_options(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.cli.output import Table
    from veilsum.simulations.audit.matrix import TITLE, condensed
    from veilsum.simulations.audit.pool import default_workers
    from veilsum.simulations.audit.report.markdown import figures, replace_figures, require_marks
    from veilsum.simulations.audit.report.page import Section
    from veilsum.simulations.audit.report.summary import summary_of
    from veilsum.simulations.audit.rows.asides import asides
    from veilsum.simulations.audit.rows.row import Row
    from veilsum.simulations.audit.runner import run_requests
    from veilsum.simulations.audit.scales import find_scale
    from veilsum.simulations.audit.sweeps.everything import ALL_SCHEMES, all_requests, left_out

    require_targets(args)
    require_gate(args)
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
    found = condensed(ALL_SCHEMES, models, outcome.rows)
    outcome.matrix = found.figures()
    learned = Table(TITLE, found.columns, found.lines)
    hidden = Table(MODEL_TITLE, MODEL_COLUMNS, models)
    sections = [Section(TITLE, LEARNED, tables=[learned]), Section(MODEL_TITLE, tables=[hidden], folded=True)]
    text = "\n".join([hidden.render(), learned.render()])
    if page is not None and not outcome.interrupted:
        said = summary_of(outcome.rows, args.task)
        replace_figures(page, figures(command_line(), outcome.rows, models, outcome.notes, said))
    return publish_outcome(outcome, f"Audit of everything, scale {scale.name}", args, sections, text)
