"""Take a party off the roster, in a new version that the others will prefer to any older one.

Its broker login goes with it. What it learned while it was a member it keeps.

example:
  veilsum roster evict fed alice
"""

from __future__ import annotations

import argparse

from veilsum.roles.commands.roster.changes import add_change_arguments, organiser_folder, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_arguments(parser)
    parser.add_argument("name", metavar="NAME", help="who has to go")


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import evict_party

    signed = evict_party(args.folder, organiser_folder(args), args.name)
    return report(signed, args.folder, f"{args.name} evicted")
