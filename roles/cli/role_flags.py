"""The flags that `veilsum server`, `client` and `peer` share, and what becomes of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.identifiers import SERVER

if TYPE_CHECKING:
    from veilsum.protocol.crypto.identity import Role


def add_role_arguments(parser: argparse.ArgumentParser, *, trains: bool) -> None:
    parser.add_argument(
        "federation", metavar="FILE", type=Path, help="federation.toml, with roster.json beside it"
    )
    default = None if trains else str(SERVER)
    parser.add_argument(
        "--name", required=trains, default=default, metavar="NAME", help="who this process is"
    )
    parser.add_argument(
        "--key", type=Path, metavar="KEYDIR", help="the key folder (default: keys/NAME beside FILE)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="where checkpoints are kept (default: state/NAME beside FILE)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the data folder, instead of the configured one"
    )
    if trains:
        parser.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:INDEX or mps")
    parser.add_argument("--init", type=Path, metavar="FILE", help="the model of round 0, as safetensors")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint, if there is one"
    )
    again.add_argument("--fresh", action="store_true", help="forget an earlier run")
    parser.add_argument(
        "--record-view",
        type=Path,
        metavar="FILE",
        help="for an audit: write all that this process sees and knows, secrets included, to a file of mode 0600 "
        "after every round; with --resume, go on with the file",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines on standard error (default text)",
    )


def run_with_arguments(role: Role, args: argparse.Namespace) -> int:
    from veilsum.roles.process.context import RoleOptions
    from veilsum.roles.process.run import run_role

    return run_role(
        role,
        RoleOptions(
            federation=args.federation,
            name=args.name,
            key=args.key,
            state=args.state,
            data=args.data,
            device=getattr(args, "device", None),
            init=args.init,
            resume=args.resume,
            fresh=args.fresh,
            record_view=args.record_view,
            log_format=args.log_format,
        ),
    )
