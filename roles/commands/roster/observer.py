"""Make a broker login for an observer, or revoke one.

An observer, such as `veilsum status`, reads what parties tell about themselves. It holds no key of the protocol and is
not on the roster. A login connects once at a time, so every machine that watches needs one of its own: move the folder
there, and name it with `veilsum status DIR --key FOLDER`.

examples:
  veilsum roster observer fed observer-office
  veilsum roster observer fed observer-office --revoke
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="the federation's folder, with broker/ in it"
    )
    parser.add_argument("name", metavar="NAME", help="observer-...: a-z, 0-9, '-', '_'")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to put it (default DIR/keys/NAME)")
    parser.add_argument("--revoke", action="store_true", help="take the login away instead")


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.errors import ParameterError, Rejection
    from veilsum.roles.federation.admission import add_observer, revoke_observer
    from veilsum.roles.federation.folder import BROKER_FOLDER, KEYS_FOLDER

    place: Path = args.out or args.folder / KEYS_FOLDER / args.name
    if args.revoke:
        revoke_observer(args.folder, args.name)
        sys.stdout.write(f"{args.name} revoked\n")
    else:
        try:
            add_observer(args.folder, args.name, place)
        except Rejection as refusal:
            raise ParameterError([refusal.detail]) from None
        sys.stdout.write(f"{place}: the login of {args.name}\n")
    sys.stdout.write(
        f"copy {args.folder / BROKER_FOLDER} to the broker's machine (then restart it, or send it SIGHUP)\n"
    )
    return 0
