"""Trust an organiser from now on, as a party that made its own keys.

Ask the organiser for the fingerprint over another channel than the one the roster came by, and type it here.
The party then accepts rosters of this organiser only, and none older than the newest it has seen.

example:
  veilsum roster pin fed --key keys/alice --fingerprint 0123-4567-89ab-cdef-0123-4567-89ab-cdef
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument("--key", metavar="KEYDIR", type=Path, required=True, help="the party's key folder")
    parser.add_argument(
        "--fingerprint", metavar="HEX", required=True, help="the organiser's fingerprint, as they told you"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.errors import AbortReason
    from veilsum.roles.federation.keystore import load_identity
    from veilsum.roles.federation.pins import pin_organiser
    from veilsum.roles.federation.signed_roster import ROSTER_FILE, RosterRefused, read_roster

    identity = load_identity(args.key)
    signed = read_roster(args.folder / ROSTER_FILE)
    if args.fingerprint.strip().lower().replace("-", "") != signed.organiser.fingerprint.replace("-", ""):
        raise RosterRefused(
            args.folder / ROSTER_FILE,
            AbortReason.WRONG_ROSTER,
            f"it is signed by an organiser with fingerprint {signed.organiser.fingerprint}, not {args.fingerprint}",
        )
    pin_organiser(args.key, signed.organiser)
    sys.stdout.write(f"{identity.name} trusts organiser {signed.organiser.fingerprint}\n")
    return 0
