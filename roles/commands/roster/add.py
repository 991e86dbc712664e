"""Enrol parties: list their public keys in a new version of the roster.

A FILE is what a party sent: NAME.enrolment in answer to an invitation (veilsum invite), or identity.pub.json with
broker-login and first-model.json beside it, or the folder with these. Several are enrolled together, or none of them.
The name must be among the parties in federation.toml; a new one is added there first. All must begin with the same
model.

First this prints twelve words for the keys of each party. Compare them with what the party read to you on the telephone
(or compare the fingerprints): whoever stole an invitation could have sent keys of his own, and enrolled keys take part.
At a terminal you are asked before anything is changed; --yes, or another standard input, enrols at once. If words
differ afterwards: veilsum roster evict, then veilsum invite --again.

examples:
  veilsum roster add fed alice.enrolment bob.enrolment carol.enrolment
  veilsum roster add fed post/alice
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
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
    parser.add_argument(
        "--yes", action="store_true", help="the words were compared: do not ask at a terminal"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.broker.files import read_logins
    from veilsum.roles.federation.folder import BROKER_FOLDER
    from veilsum.roles.invitations.inviting import enrol

    asked = sys.stdin.isatty() and not args.yes
    enrolled: list[PublicIdentity] = []

    def compare(identities: Sequence[PublicIdentity]) -> None:
        enrolled.extend(identities)
        _show_words(identities)
        if asked:
            _require_yes()

    signed = enrol(args.folder, organiser_folder(args), args.files, args.login, compare)
    logins = read_logins(args.folder / BROKER_FOLDER, signed.federation_id)
    for identity in enrolled:
        if identity.name not in logins:
            sys.stdout.write(f"no broker-login came with it: the broker will not let {identity.name} in\n")
    return report(signed, args.folder, "enrolled")


def _show_words(identities: Sequence[PublicIdentity]) -> None:
    from veilsum.roles.invitations.words import words_of_identity

    for identity in identities:
        sys.stdout.write(
            f"{identity.role} {identity.name}, fingerprint {identity.fingerprint}\n"
            f"  {identity.name} must read the same: {words_of_identity(identity)}\n"
        )
    sys.stdout.flush()


def _require_yes() -> None:
    from veilsum.protocol.errors import ParameterError

    sys.stderr.write("Did every party read exactly these words to you? Type yes to enrol: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise ParameterError(
            [
                "nobody was enrolled: call the parties at numbers that you know, have them read the words that "
                "veilsum join printed, and run this command again; where words differ, veilsum invite --again"
            ]
        )
