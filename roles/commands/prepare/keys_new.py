"""Make new keys for one party, and a password for the broker, on the machine that uses them.

The private keys never leave the folder. Send the organiser its two public files, identity.pub.json and
broker-login, and compare the fingerprint with them over another channel.

examples:
  veilsum keys new alice --role peer          (schemes mpc and ampc)
  veilsum keys new bob --role client          (schemes plain and masked)
  veilsum keys new server --role server
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="as listed in federation.toml: a-z, 0-9, '-', '_'")
    parser.add_argument(
        "--role",
        choices=("peer", "client", "server", "organiser"),
        help="peer for mpc and ampc (makes an RSA key too), client for plain and masked "
        "(default: peer, or server for the name server)",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to put them (default keys/NAME)")


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.crypto.identity import Role
    from veilsum.protocol.errors import ParameterError, Rejection
    from veilsum.protocol.identifiers import SERVER, require_party_id
    from veilsum.roles.broker.logins import LOGIN_FILE
    from veilsum.roles.federation.enrolment import create_party
    from veilsum.roles.federation.keystore import PUBLIC_FILE, create_identity

    try:
        name = require_party_id(args.name)
    except Rejection as refusal:
        raise ParameterError([refusal.detail]) from None
    role = Role(args.role or ("server" if name == SERVER else "peer"))
    folder: Path = args.out or Path("keys") / name
    if role is Role.ORGANISER:
        identity = create_identity(folder, name, role, with_rsa=False)
        sys.stdout.write(f"{folder}: keys of organiser {name}, fingerprint {identity.fingerprint}\n")
        return 0
    identity, _ = create_party(folder, name, role)
    sys.stdout.write(
        f"{folder}: keys of {role} {name}\n"
        f"fingerprint: {identity.fingerprint}\n"
        f"send the organiser {folder / PUBLIC_FILE} and {folder / LOGIN_FILE}, and nothing else\n"
    )
    return 0
