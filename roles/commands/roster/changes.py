"""What the commands that change a roster have in common: their options, and what they say when done."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veilsum.protocol.agreed.anchor import Anchor
    from veilsum.roles.federation.signed_roster import SignedRoster

NOT_SIGNED = 2
"""The exit code of a command that only showed what it would sign."""


def add_change_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument(
        "--organiser",
        metavar="KEYDIR",
        type=Path,
        help="the organiser's key folder (default DIR/organiser)",
    )


def organiser_folder(args: argparse.Namespace) -> Path:
    chosen: Path = args.organiser or args.folder / "organiser"
    return chosen


def describe_anchor(anchor: Anchor) -> str:
    """Where the chain begins, for people to compare."""
    return (
        f"chain {anchor.chain.hex()}, position {anchor.position}, state {anchor.state_hash.hex()}, "
        f"checkpoint {anchor.checkpoint}, "
        f"{len(anchor.electorate)} may vote there: {', '.join(anchor.electorate)}"
    )


def report(signed: SignedRoster, folder: Path, what: str) -> int:
    anchor = signed.roster.anchor
    if anchor is not None:
        sys.stdout.write(f"{describe_anchor(anchor)}\n")
    sys.stdout.write(
        f"{what}: roster version {signed.version}, {len(signed.roster.identities)} identities\n"
        "where parties were invited, veilsum host hands it out; else "
        f"copy {folder / 'roster.json'} to every machine, and {folder / 'broker'} to the broker's "
        "(then restart it, or send it SIGHUP)\n"
    )
    return 0
