"""What a perturbed model costs a client and the server, against plain training in the same run.

`client_over_plain` is the perturbed client step over a plain autograd step, `server_over_plain` drawing a key,
perturbing and recovering over a plain average and step, `upload_over_plain` the numbers uploaded over the model's. CPU
time of one thread; the median over turns in which everything is timed once. Also the four phases of both sides.

examples:
  veilsum bench perturbed --model resnet20 --batch 32 --loss mse --groups 1 --json perturbed.json
  veilsum bench perturbed --model mlp5:512 --loss ce
  veilsum bench perturbed --model resnet20 --noise scale
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from veilsum.roles.cli.output import Table, add_json_option, publish

if TYPE_CHECKING:
    from veilsum.simulations.benchmarks.measuring import Figure

PHASES = ("perturbation", "forward", "backward", "update", "exchange")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="resnet20",
        metavar="MODEL",
        help="a model by name, as resnet20 (default), mlp5:512",
    )
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="samples in a batch (default 32)")
    parser.add_argument("--loss", choices=("mse", "ce"), default="mse", help="default mse")
    parser.add_argument("--groups", type=int, default=1, metavar="M", help="groups of outputs (default 1)")
    parser.add_argument("--noise", choices=("scale+offset", "scale"), default="scale+offset")
    parser.add_argument(
        "--turns", type=int, default=30, metavar="N", help="measurements of each (default 30)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.errors import ParameterError
    from veilsum.simulations.benchmarks.perturbed import rows
    from veilsum.simulations.benchmarks.perturbed import run as measure

    problems = [
        f"{name} must be at least 1, not {getattr(args, name)}"
        for name in ("batch", "turns")
        if getattr(args, name) < 1
    ]
    if problems:
        raise ParameterError(problems)
    figures = measure(args.model, args.batch, args.loss, args.groups, args.noise, turns=args.turns)
    publish(_ratios(figures, rows(figures)) + "\n" + _phases(figures), figures, args.json)
    return 0


def _ratios(figures: dict[str, Any], found: list[Figure]) -> str:
    title = (
        f"{figures['model']} ({figures['parameters']:,} parameters), batch {figures['batch']}, loss {figures['loss']}, "
        f"noise {figures['noise']}, groups {figures['groups']}, condition number {figures['condition']:.3g}"
    )
    return Table(title, ("figure", "value", "limit", "", "meaning"), [one.row() for one in found]).render()


def _phases(figures: dict[str, Any]) -> str:
    rows = [
        (side.replace("_", " "), *(f"{1000 * seconds.get(phase, 0.0):.2f}" for phase in PHASES))
        for side, seconds in figures["phases_s"].items()
    ]
    return Table("Phases, milliseconds of CPU time", ("side", *PHASES), rows).render()
