"""Sign the settings in federation.toml as they are now, in a new version of the roster.

Needed after every change of a setting that is not marked (local): parties refuse settings that the organiser
has not signed.

Where the parties hold the chain of models, the first model is signed too, and all enrolled parties must state the same:
who differs is named. If a change gives another first model, every party makes its statement anew (veilsum keys
first-model), and a new chain begins.

With --new-chain another chain begins in any case, at position 0, with the first model that all parties state; --yes
signs it. Stop all parties first; then each starts with --fresh, and has its vote. What it costs: the model of the chain
before is left behind (veilsum export takes it away first, --init begins with it), privacy accounts begin anew, and the
first sums come from the same data as before, so that a cohort that differs from an earlier one by few parties tells
about them.

examples:
  veilsum roster sign fed
  veilsum roster sign fed --new-chain --yes
  veilsum roster sign fed --first-model post/alice/first-model.json --first-model post/bob/first-model.json

exit codes:
  0    signed
  2    shown only, or refused
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from veilsum.roles.commands.roster.changes import (
    NOT_SIGNED,
    add_change_arguments,
    describe_anchor,
    organiser_folder,
    report,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_arguments(parser)
    parser.add_argument(
        "--first-model",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="first-model.json of a party, in place of what it stated before; may be repeated",
    )
    parser.add_argument(
        "--new-chain",
        action="store_true",
        help="begin another chain of models at position 0; without --yes, say what that costs and sign nothing",
    )
    parser.add_argument("--yes", action="store_true", help="with --new-chain: sign it")


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import sign_again

    if args.new_chain and not args.yes:
        return _show_cost(args.folder)
    signed = sign_again(args.folder, organiser_folder(args), args.first_model, new_chain=args.new_chain)
    return report(
        signed, args.folder, "signed, and every party starts with --fresh" if args.new_chain else "signed"
    )


def _show_cost(folder: Path) -> int:
    from veilsum.roles.federation.signed_roster import ROSTER_FILE, read_roster

    before = read_roster(folder / ROSTER_FILE)
    anchor = before.roster.anchor
    left = "no chain" if anchor is None else describe_anchor(anchor)
    sys.stdout.write(
        f"to be signed as version {before.version + 1}: another chain, in place of {left}\n"
        "its model is left behind: veilsum export takes it away, and veilsum keys first-model --init begins with it; "
        "privacy accounts begin anew; sums of the same data are opened again, so that a cohort which differs from an "
        "earlier one by fewer than min_parties tells about them; and you vouch that nobody goes on under version "
        f"{before.version}; nothing was signed: add --yes\n"
    )
    return NOT_SIGNED
