"""Invite parties: one file for each, to be sent by any channel, and twelve words to read to its owner on the telephone.

The file NAME.invite holds the settings and the roster with your signature, the code that the settings name, the
broker's address and certificate authority, and a password for the broker. Without --name, every party is invited that
is not enrolled and has no good invitation. The server's keys are made here, in DIR/keys/server, unless one is enrolled
already (for a server elsewhere: veilsum keys new server there, and veilsum roster add here, before). With --name, a
party whose invitation is still good keeps it, and its words are shown once more; --again makes it void.

The words are what keeps a man in the middle out: who changes the file cannot keep them. Who steals it can knock at the
broker under the party's name until the party is enrolled, with a password of its own then, and read the roster; he
takes part only if you enrol his keys without comparing their words with the party. What comes back, NAME.enrolment, is
for veilsum roster add.

examples:
  veilsum invite fed
  veilsum invite fed --name alice
  veilsum invite fed --name alice --again
  veilsum invite fed --revoke alice
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from veilsum.roles.commands.roster.changes import add_change_arguments, organiser_folder

DEFAULT_DAYS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_arguments(parser)
    parser.add_argument(
        "--name", action="append", default=[], metavar="NAME", help="whom to invite; may be repeated"
    )
    parser.add_argument(
        "--days",
        type=int,
        default=DEFAULT_DAYS,
        metavar="N",
        help=f"how long it is good (default {DEFAULT_DAYS})",
    )
    parser.add_argument(
        "--again", action="store_true", help="another invitation, which makes the open one void"
    )
    parser.add_argument("--revoke", metavar="NAME", help="make an open invitation void, and write none")
    parser.add_argument(
        "--no-server", action="store_true", help="make no keys for a server here: it is enrolled otherwise"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.invitations.inviting import invite, make_server_keys, revoke

    if args.revoke is not None:
        revoke(args.folder, args.revoke)
        sys.stdout.write(f"the invitation of {args.revoke} is void; {_to_broker(args.folder)}\n")
        return 0
    if not args.no_server and make_server_keys(args.folder, organiser_folder(args)):
        sys.stdout.write(f"the server is enrolled; its keys are in {args.folder / 'keys' / 'server'}\n")
    sent = invite(args.folder, organiser_folder(args), args.name, days=args.days, again=args.again)
    for one in sent:
        kept = "" if one.new else "it is open already, and stays as it was sent; "
        sys.stdout.write(
            f"\n{one.path}\n"
            f"  {kept}send it to {one.invitation.name}; it is good until {one.invitation.last_day}\n"
            f"  read to {one.invitation.name} on the telephone: {one.invitation.words}\n"
        )
    if not sent:
        sys.stdout.write(
            "everyone is enrolled or has a good invitation: --name NAME shows its words once more, with --again it "
            "writes another\n"
        )
    if not any(one.new for one in sent):
        return 0
    sys.stdout.write(
        "\nEach file holds a password for the broker: who steals it can knock there under that name, and takes part "
        "only if you\nenrol his keys. When NAME.enrolment comes back: veilsum roster add, and compare its words with "
        f"the party.\n{_to_broker(args.folder)}\n"
    )
    return 0


def _to_broker(folder: Path) -> str:
    return f"if the broker runs elsewhere, copy {folder / 'broker'} there; if it runs, restart it or send it SIGHUP"
