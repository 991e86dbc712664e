"""Sign the settings in federation.toml as they are now, in a new version of the roster.

Needed after every change of a setting that is not marked (local): parties refuse settings that the organiser
has not signed.

Where the parties hold the chain of models, the first model is signed too, and all enrolled parties must state the same:
who differs is named. If a change gives another first model, every party makes its statement anew (veilsum keys
first-model), and a new chain begins.

examples:
  veilsum roster sign fed
  veilsum roster sign fed --first-model post/alice/first-model.json --first-model post/bob/first-model.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from veilsum.roles.commands.roster.changes import add_change_arguments, organiser_folder, report


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


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import sign_again

    signed = sign_again(args.folder, organiser_folder(args), args.first_model)
    return report(signed, args.folder, "signed")
