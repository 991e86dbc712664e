"""Run a whole federation in this process, on virtual time: the same machines and messages as over MQTT.

    veilsum simulate --scheme ampc --parties 5 --rounds 3 --task digits --seed 7 --compare plain
    veilsum simulate --scheme masked --parties 8 --drop 2@upload --task digits
    veilsum simulate --scheme masked --faults drop=0.1,duplicate=0.1,reorder=0.2 --task vectors:1000
    veilsum simulate --scheme masked --parties 8 --lie server:shift --task vectors:1000
    veilsum simulate --lie list
    veilsum simulate --task ./task.py:study --parties alice,bob --split own --data alice=data/a,bob=data/b
    veilsum simulate fed/federation.toml --json out.json --html out.html

A task, scheme or defence that FILE names as code of its own is loaded, so simulate only files that you would run.

Everything follows from --seed: data split, initial model, batches, faults and who is lost. A run of more than two
seconds tells each round with loss and metric on standard error, as it is committed. The table has one line per round;
below it stand the final metric beside the compared run, the cost against plain FedAvg, and what each role saw. A run
that ends without all its rounds exits with 1 and says why; after Ctrl-C the finished rounds are shown and written all
the same, and it exits with 130. `--compare plain` is FedAvg without the defence, if there is one.

With --data PARTY=FOLDER,... every party reads a folder of its own, which is what `--split own` means; all are measured
on one test set, the test samples of all folders together.

With --lie a party breaks the protocol in the way that the name says, and all others are honest. The table then has one
line for each thing that an honest party noticed; below it stand whom they named, which rounds they committed, and how
many of these commits are not what the members' updates add up to. Such a run exits with 0, however it ends, and with 2
if there is no such lie or it makes no sense in the scheme (specs/lies.md).
"""

from __future__ import annotations

import argparse
import sys

from veilsum.roles.cli.exit_codes import EXIT_INTERRUPTED
from veilsum.roles.cli.flags import add_federation_arguments, config_from_arguments
from veilsum.roles.cli.output import add_json_option, file_target, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a federation.toml, or the folder of one; options given besides it win",
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
    group.add_argument(
        "--lie",
        metavar="NAME",
        help="let a party lie in this way, and show what the others noticed; `--lie list` shows all names",
    )
    add_json_option(parser)
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=file_target,
        help="also write a page with curves, bytes and who saw what",
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.machines.scheme import starting_warnings
    from veilsum.roles.cli.output_file import write_output
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.config.file import settings_file
    from veilsum.simulations.lies.registry import LISTED
    from veilsum.simulations.lies.report import describe_lies, list_lies
    from veilsum.simulations.run.page import simulation_page
    from veilsum.simulations.run.report import describe
    from veilsum.simulations.run.simulate import simulate

    if args.lie == LISTED:
        publish(describe_lies(), {"lies": list_lies()}, args.json)
        return 0
    base = None if args.file is None else FederationConfig.from_toml(settings_file(args.file), run_code=True)
    config = config_from_arguments(args, base)
    result = simulate(
        config,
        faults=args.faults,
        drop=args.drop,
        compare=args.compare,
        progress=True,
        lie=args.lie,
        keep_finished=True,
    )
    federation = result.federation
    for text in (
        *starting_warnings(federation.scheme, federation.parameters),
        *federation.data_notes(),
        *federation.equipment_notes(),
        *federation.defence_notes(),
    ):
        sys.stderr.write(f"note: {text}\n")
    publish(describe(result), result.figures(), args.json)
    if args.html is not None:
        write_output(args.html, simulation_page(result))
    if result.interrupted:
        return EXIT_INTERRUPTED
    if result.lie is not None:
        return 0
    return 1 if result.failed is not None else 0
