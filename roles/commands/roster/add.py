"""Enrol parties: list their public keys in a new version of the roster.

A FILE is what a party sent: NAME.enrolment in answer to an invitation (veilsum invite), or identity.pub.json with
broker-login and first-model.json beside it, or the folder with these. Several are enrolled together, or none of them.
The name must be among the parties in federation.toml; a new one is added there first. All must begin with the same
model.

Compare the words that this command prints with each party on the telephone (or the fingerprint), before the roster is
handed out: whoever stole an invitation could have sent keys of his own, and enrolled keys take part. If they differ:
veilsum roster evict, then veilsum invite --again.

examples:
  veilsum roster add fed alice.enrolment bob.enrolment carol.enrolment
  veilsum roster add fed post/alice
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
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="what a party sent: NAME.enrolment, or its public files",
    )
    parser.add_argument(
        "--login",
        metavar="FILE",
        type=Path,
        help="broker-login of the party (default: the file of that name beside FILE)",
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.broker.files import read_logins
    from veilsum.roles.federation.folder import BROKER_FOLDER
    from veilsum.roles.invitations.inviting import enrol
    from veilsum.roles.invitations.words import words_of_identity

    before = {one.name for one in _listed(args.folder)}
    signed = enrol(args.folder, organiser_folder(args), args.files, args.login)
    for identity in signed.roster.identities:
        if identity.name in before:
            continue
        sys.stdout.write(
            f"{identity.role} {identity.name}, fingerprint {identity.fingerprint}\n"
            f"  {identity.name} must read the same: {words_of_identity(identity)}\n"
        )
        if identity.name not in read_logins(args.folder / BROKER_FOLDER, signed.federation_id):
            sys.stdout.write(f"no broker-login came with it: the broker will not let {identity.name} in\n")
    return report(signed, args.folder, "enrolled")


def _listed(folder: Path) -> tuple[PublicIdentity, ...]:
    from veilsum.roles.federation.signed_roster import ROSTER_FILE, read_roster

    return read_roster(folder / ROSTER_FILE).roster.identities
