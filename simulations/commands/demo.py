"""A secure sum of real vectors in one process: who saw what, and the error against the plain sum."""

from __future__ import annotations

import argparse

from veilsum.roles.output import add_json_option, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parties", type=int, default=5, metavar="N", help="how many parties (default 5)")
    parser.add_argument(
        "--dim", type=int, default=100_000, metavar="D", help="length of a vector (default 100000)"
    )
    parser.add_argument("--seed", type=int, default=7, metavar="S", help="seed of the vectors (default 7)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.demo import secure_mean

    result = secure_mean(args.parties, args.dim, args.seed)
    publish(result.describe(), result.figures(), args.json)
    return 0
