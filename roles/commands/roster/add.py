"""Enrol a party: list its public keys in a new version of the roster.

The party's name must be among the parties in federation.toml; a new one is added there first. Compare the
fingerprint that this command prints with the party, over another channel than the one its file came by.

What the party begins with, first-model.json, is taken from beside FILE. Where the parties hold the chain of models, all
must begin with the same one.

example:
  veilsum roster add fed alice/identity.pub.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.roles.commands.roster.changes import add_change_arguments, organiser_folder, report

if TYPE_CHECKING:
    from veilsum.protocol.crypto.identity import PublicIdentity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_arguments(parser)
    parser.add_argument(
        "public", metavar="FILE", type=Path, help="identity.pub.json of the party, or its folder"
    )
    parser.add_argument(
        "--login",
        metavar="FILE",
        type=Path,
        help="broker-login of the party (default: the file of that name beside FILE)",
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.broker.files import read_logins
    from veilsum.roles.federation.enrolment import add_party
    from veilsum.roles.federation.folder import BROKER_FOLDER

    before = {one.name for one in _listed(args.folder)}
    signed = add_party(args.folder, organiser_folder(args), args.public, args.login)
    for identity in signed.roster.identities:
        if identity.name in before:
            continue
        sys.stdout.write(f"{identity.role} {identity.name}, fingerprint {identity.fingerprint}\n")
        if identity.name not in read_logins(args.folder / BROKER_FOLDER, signed.federation_id):
            sys.stdout.write(f"no broker-login came with it: the broker will not let {identity.name} in\n")
    return report(signed, args.folder, "enrolled")


def _listed(folder: Path) -> tuple[PublicIdentity, ...]:
    from veilsum.roles.federation.signed_roster import ROSTER_FILE, read_roster

    return read_roster(folder / ROSTER_FILE).roster.identities
