"""Measure a model on the task's test set: the one a party of this machine holds, or one from a safetensors file.

Where each party has a data folder of its own (--data alice=DIR,bob=DIR), the test set is that of all folders named.

A task that is code of the federation's own is loaded only for a party whose pinned organiser signed it: name its key
folder with --key.

examples:
  veilsum evaluate fed --name alice
  veilsum evaluate fed --model model.safetensors --json metrics.json
  veilsum evaluate fed --name alice --key /etc/veilsum/alice
"""

from __future__ import annotations

import argparse
from pathlib import Path

from veilsum.roles.cli.output import add_json_option, publish
from veilsum.roles.commands.model.looking import KEY_HELP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--name", metavar="NAME", help="the model that this party holds")
    which.add_argument("--model", metavar="FILE", type=Path, help="the model in this safetensors file")
    parser.add_argument("--state", type=Path, metavar="DIR", help="with --name: its checkpoints")
    parser.add_argument("--key", type=Path, metavar="KEYDIR", help=KEY_HELP)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the data folder, instead of the configured one, or PARTY=DIR,PARTY=DIR,...",
    )
    parser.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:INDEX or mps")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.cli.output import Table
    from veilsum.roles.federation.folder import look_or_enter
    from veilsum.roles.learning.contract import sha256_of
    from veilsum.roles.learning.factory import make_observing_learner
    from veilsum.roles.learning.model_files import layout_of, load_model
    from veilsum.roles.learning.own_data import load_pooled_task
    from veilsum.roles.process.held_model import held_model

    loaded = look_or_enter(args.folder, args.key)
    config = loaded.config
    task = load_pooled_task(config, loaded.data_folders(args.data))
    if args.model is not None:
        model, whose = load_model(args.model, layout_of(task)), str(args.model)
    else:
        model, rounds = held_model(loaded, args.name, args.state)
        whose = f"{args.name} after {rounds} rounds"
    metrics = make_observing_learner(config, task, args.device).evaluate(model)
    rows = [(name, f"{value:.4f}") for name, value in metrics.items()]
    text = Table(f"{whose}, task {config.task}", ("metric", "value"), rows).render() if rows else f"{whose}\n"
    figures = {"task": config.task, "model_sha256": sha256_of(model), "metrics": metrics}
    publish(text, figures, args.json)
    return 0
