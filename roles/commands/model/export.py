"""Write the model that a party of this machine holds as a safetensors file: named tensors, readable everywhere.

The file also states the order of the tensors in the vector that the parties average, so that it can be given to
`--init` of another run. Where the scheme keeps the model from a role, there is nothing to export.

With --protected the weights are rescaled under a fresh secret that nobody keeps. The model predicts the same labels
and works wherever the true one does: it is not a secret model, only not the true weights
(specs/perturbation-limits.md).

A task that is code of the federation's own is loaded only for a party whose pinned organiser signed it: name its key
folder with --key.

examples:
  veilsum export fed --name alice model.safetensors
  veilsum export fed --protected model.safetensors
  veilsum export fed --name alice --state /var/lib/veilsum/alice model.safetensors
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from veilsum.roles.cli.output import file_target
from veilsum.roles.cli.output_file import is_standard_output
from veilsum.roles.commands.model.looking import KEY_HELP

if TYPE_CHECKING:
    from veilsum.protocol.perturbation.tracing.trace import Barrier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument(
        "target", metavar="FILE", type=file_target, help="the file to write, e.g. model.safetensors"
    )
    parser.add_argument("--name", metavar="NAME", help="whose model (default with --protected: the server's)")
    parser.add_argument(
        "--protected", action="store_true", help="other weights that make the same predictions"
    )
    parser.add_argument("--state", type=Path, metavar="DIR", help="its checkpoints (default: DIR/state/NAME)")
    parser.add_argument("--key", type=Path, metavar="KEYDIR", help=KEY_HELP)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the data folder, instead of the configured one, or PARTY=DIR,PARTY=DIR,...",
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.errors import ParameterError
    from veilsum.protocol.identifiers import SERVER
    from veilsum.roles.federation.folder import look_or_enter
    from veilsum.roles.learning.contract import sha256_of
    from veilsum.roles.learning.datasets.registry import load_task
    from veilsum.roles.learning.model_files import layout_of, save_model
    from veilsum.roles.process.entropy import require_real_entropy, system_entropy
    from veilsum.roles.process.held_model import held_model

    name = args.name or (SERVER if args.protected else None)
    if name is None:
        raise ParameterError(["--name: say whose model to export"])
    loaded = look_or_enter(args.folder, args.key)
    model, rounds = held_model(loaded, name, args.state)
    config = loaded.config
    task = load_task(config.task, config.task_options(loaded.data_folder(args.data)), config.code)
    if args.protected:
        from veilsum.roles.learning.perturbation.protected import protected_model_of_task

        random, barrier = require_real_entropy(system_entropy), cast("Barrier", loaded.config.barrier)
        model = protected_model_of_task(task, model, loaded.config.seed, random, barrier)
    save_model(args.target, model, layout_of(task))
    kind = "protected model" if args.protected else "model"
    screen = sys.stderr if is_standard_output(args.target) else sys.stdout
    screen.write(f"{args.target}: the {kind} of {name} after {rounds} rounds, sha256 {sha256_of(model)}\n")
    return 0
