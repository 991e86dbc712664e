"""What one round costs: CPU time of each role, bytes against plain float32, memory, error.

All roles run in one process, one after the other; identities and inputs are made before the clock starts. Several
numbers of parties give a table and the growth against n log n.

examples:
  veilsum bench rounds --scheme masked --parties 10 --dim 1000000 --bits 32 --json rounds.json
  veilsum bench rounds --scheme masked --parties 50 --dim 1000000 --bits 32 --drop 5
  veilsum bench rounds --scheme masked --parties 250,500,1000 --dim 10000 --bits 32 --drop 10% --threat semi-honest
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from veilsum.roles.cli.output import Table, add_json_option, publish

if TYPE_CHECKING:
    from veilsum.simulations.benchmarks.rounds import RoundCost

COLUMNS = (
    "parties",
    "dim",
    "dropped",
    "graph",
    "client s",
    "server s",
    "total s",
    "setup s",
    "up/plain",
    "peak MiB",
    "max error",
    "verified",
    "own step",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheme", default="masked", metavar="SCHEME", help="plain, mpc, ampc, masked (default masked)"
    )
    parser.add_argument(
        "--parties", type=_counts, default=(10,), metavar="N[,N...]", help="how many (default 10)"
    )
    parser.add_argument(
        "--dim", type=int, default=1_000_000, metavar="D", help="numbers in a vector (default 1000000)"
    )
    parser.add_argument("--bits", type=int, choices=(32, 64), default=32, help="ring words (default 32)")
    parser.add_argument(
        "--drop", default="0", metavar="N", help="parties lost before their upload: 3, or 10%% (default 0)"
    )
    parser.add_argument(
        "--threat",
        choices=("lying", "semi-honest"),
        default="lying",
        help="what the server may do (default lying)",
    )
    parser.add_argument(
        "--graph", default="auto", metavar="GRAPH", help="complete, ring, k-regular:K, auto (default auto)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.cli.progress import Progress
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.config.values import party_names
    from veilsum.simulations.benchmarks.rounds import growth, measure_round, parse_drop

    costs = []
    progress = Progress(f"bench rounds, {args.scheme}", len(args.parties))
    for parties in args.parties:
        config = FederationConfig(
            scheme=args.scheme,
            parties=party_names(parties),
            rounds=1,
            task=f"vectors:{args.dim}",
            bits=args.bits,
            clip=1.0,
            max_weight=1,
            threat=args.threat,
            graph=args.graph,
        )
        costs.append(measure_round(config, parse_drop(args.drop, parties)))
        progress.update(len(costs), f"{parties} parties")
    progress.close()
    title = f"One round of {args.scheme}, {args.bits}-bit words, threat {args.threat}, CPU seconds"
    text = Table(title, COLUMNS, [cost.row() for cost in costs]).render()
    text += "\n".join(["", *(_limit(cost) for cost in costs if cost.figure.met is not None), ""])
    steps = growth(costs)
    if steps:
        text += f"\ngrowth over n log n: {', '.join(f'{step:.2f}' for step in steps)}\n"
    series = {"rows": [cost.figures() for cost in costs], "growth_over_n_log_n": steps}
    publish(text, costs[0].figures() if len(costs) == 1 else series, args.json)
    return 0


def _limit(cost: RoundCost) -> str:
    name, value, limit, met, meaning = cost.figure.row()
    return f"{name} {value}, {limit}: {met} ({meaning})"


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 250,500,1000") from None
