"""Run a whole federation in this process, on virtual time: the same machines and messages as over MQTT.

    veilsum simulate --scheme ampc --parties 5 --rounds 3 --task digits --seed 7 --compare plain
    veilsum simulate --scheme masked --parties 8 --drop 2@upload --task digits
    veilsum simulate --scheme masked --faults drop=0.1,duplicate=0.1,reorder=0.2 --task vectors:1000
    veilsum simulate fed/federation.toml --json out.json

A task, scheme or defence that FILE names as code of its own is loaded, so simulate only files that you would run.

Everything follows from --seed: data split, initial model, batches, faults and who is lost. The table has one line
per round; below it stand the final metric beside the compared run, the cost against plain FedAvg, and what each role
saw. A run that ends without all its rounds exits with 1 and says why.
"""

from __future__ import annotations

import argparse
import sys

from veilsum.roles.cli.flags import add_federation_arguments, config_from_arguments
from veilsum.roles.cli.output import add_json_option, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a federation.toml; options given besides it win"
    )
    add_federation_arguments(parser)
    group = parser.add_argument_group("what happens to it")
    group.add_argument(
        "--drop",
        metavar="N@PHASE",
        help="lose N parties, drawn from the seed, in this phase of the first round, e.g. 1@upload",
    )
    group.add_argument(
        "--faults",
        metavar="LIST",
        help="what the network does: drop=0.1,duplicate=0.1,reorder=0.2,delay=0.05,corrupt=0.01",
    )
    group.add_argument(
        "--compare",
        choices=("plain", "central", "standalone"),
        help="also run plain FedAvg, one model on the pooled data, or each party alone",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.machines.scheme import starting_warnings
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.simulations.run.report import describe
    from veilsum.simulations.run.simulate import simulate

    base = FederationConfig.from_toml(args.file, run_code=True) if args.file else None
    config = config_from_arguments(args, base)
    result = simulate(config, faults=args.faults, drop=args.drop, compare=args.compare, progress=True)
    federation = result.federation
    for text in (
        *starting_warnings(federation.scheme, federation.parameters),
        *federation.equipment_notes(),
        *federation.defence_notes(),
    ):
        sys.stderr.write(f"note: {text}\n")
    publish(describe(result), result.figures(), args.json)
    return 1 if result.failed is not None else 0
