"""Sign the settings in federation.toml as they are now, in a new version of the roster.

Needed after every change of a setting that is not marked (local): parties refuse settings that the organiser
has not signed.

example:
  veilsum roster sign fed
"""

from __future__ import annotations

import argparse

from veilsum.roles.commands.roster.changes import add_change_arguments, organiser_folder, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import sign_again

    return report(sign_again(args.folder, organiser_folder(args)), args.folder, "signed")
