"""Write the model that a party of this machine holds as a safetensors file: named tensors, readable everywhere.

The file also states the order of the tensors in the vector that the parties average, so that it can be given to
`--init` of another run. Where the scheme keeps the model from a role, there is nothing to export.

examples:
  veilsum export fed --name alice model.safetensors
  veilsum export fed --name alice --state /var/lib/veilsum/alice model.safetensors
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument("target", metavar="FILE", type=Path, help="the file to write, e.g. model.safetensors")
    parser.add_argument("--name", required=True, metavar="NAME", help="whose model")
    parser.add_argument("--state", type=Path, metavar="DIR", help="its checkpoints (default: DIR/state/NAME)")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the data folder, instead of the configured one"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation import load_federation
    from veilsum.roles.holdings import held_model
    from veilsum.roles.learner import sha256_of
    from veilsum.roles.learning.modelfiles import layout_of, save_model
    from veilsum.roles.learning.task import load_task

    loaded = load_federation(args.folder)
    model, rounds = held_model(loaded, args.name, args.state)
    task = load_task(loaded.config.task, loaded.config.task_options(loaded.data_folder(args.data)))
    save_model(args.target, model, layout_of(task))
    sys.stdout.write(
        f"{args.target}: the model of {args.name} after {rounds} rounds, sha256 {sha256_of(model)}\n"
    )
    return 0
