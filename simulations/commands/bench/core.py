"""The protocol core against its limits, measured in one run.

Ratios compare throughput in CPU time on this machine, taken in turns, best of several: read them rather than
the absolute figures. The exit code is 0 whether or not a limit is met; the table and the JSON say which.

example:
  veilsum bench core --json core.json
"""

from __future__ import annotations

import argparse

from veilsum.roles.cli.output import Table, add_json_option, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.benchmarks.core import as_json, measure_core

    figures = measure_core()
    table = Table(
        "The protocol core, one thread, CPU time",
        ("figure", "value", "limit", "", "what it is"),
        [figure.row() for figure in figures],
    )
    publish(table.render(), as_json(figures), args.json)
    return 0
