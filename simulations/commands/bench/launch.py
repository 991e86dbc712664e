"""Starting a federation: seconds from `veilsum launch` to the first session, processor time, and memory of a party.

Each is measured as it is, with all processes forked from one that has imported everything, and with --beside also with
every process importing by itself. The limits are for two idle cores: 3 s for four peers, 12 s for forty parties.

examples:
  veilsum bench launch --json launch.json
  veilsum bench launch --parties 4 --scheme ampc --task digits --beside
  veilsum bench launch --parties 40 --scheme masked --task vectors:1000
"""

from __future__ import annotations

import argparse

from veilsum.roles.cli.output import Table, add_json_option, publish

LIMITS_S = {4: 3.0, 40: 12.0}
"""Parties, and the seconds that their start may take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parties",
        type=int,
        action="append",
        metavar="N",
        help="how many, again for more (default 4 and 40)",
    )
    parser.add_argument("--scheme", default="ampc", help="any scheme (default ampc)")
    parser.add_argument(
        "--task", default="digits", help="any task (default digits; vectors:N needs no torch)"
    )
    parser.add_argument("--beside", action="store_true", help="also without preloading, for comparison")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.benchmarks.measuring import Figure
    from veilsum.simulations.benchmarks.starting import cores, measure_start

    figures, series = [], []
    for parties in args.parties or sorted(LIMITS_S):
        for preload in (True, False) if args.beside else (True,):
            cost = measure_start(parties, args.scheme, args.task, preload=preload)
            series.append({"parties": parties, "preload": preload, **cost})
            who = f"{parties} parties{'' if preload else ', each importing by itself'}"
            limit = LIMITS_S.get(parties) if preload else None
            figures += [
                Figure(
                    "start_s", cost["start_s"], f"from the command to the session of {who}", at_most=limit
                ),
                Figure("processor_s", cost["processor_s"], f"of all processes, with one round, {who}"),
                Figure("party_mib", cost["party_mib"], f"memory of a party (PSS), {who}"),
            ]
    table = Table(
        f"veilsum launch, {args.scheme}, task {args.task}, {cores()} cores",
        ("figure", "value", "limit", "", "what it is"),
        [figure.row() for figure in figures],
    )
    publish(table.render(), {"scheme": args.scheme, "task": args.task, "rows": series}, args.json)
    return 0
