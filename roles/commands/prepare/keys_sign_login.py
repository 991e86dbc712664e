"""Sign the broker login of a key folder that an earlier version made, for an organiser who enrols it.

Newer keys have their login signed from the beginning. Who is enrolled already needs nothing: the broker has the login.
Keys and password stay as they are. Send the organiser broker-login again, with identity.pub.json.

examples:
  veilsum keys sign-login keys/alice
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="KEYDIR", type=Path, help="the party's key folder")


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.broker.logins import LOGIN_FILE
    from veilsum.roles.broker.signed_login import sign_login_again
    from veilsum.roles.federation.keystore import load_identity

    sign_login_again(args.folder, load_identity(args.folder))
    sys.stdout.write(f"send the organiser {args.folder / LOGIN_FILE}\n")
    return 0
