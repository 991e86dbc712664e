"""Sign where the chain of models goes on from, in a new version of the roster.

For a position whose sum was spoiled, or at which too few of those who may vote are left. The parties then train anew
from the state that is named here. With --evict a party goes at the same time.

What it costs: parties whose sum of this position was opened give another update at the same model, so the server may
compare two nearly equal sums. By signing, the organiser vouches that nobody goes on under the roster before: stop all
parties first, and copy the new one to every machine.

Without --yes it shows what would be signed, and signs nothing. Changed settings are signed first (veilsum roster sign).

Position and state are read from the state folders of parties on this machine (--from), which must agree, or given as
the parties' logs say them ("holds: position 7, state 9f2c...").

examples:
  veilsum roster checkpoint fed --from alice --from bob
  veilsum roster checkpoint fed --position 7 --state-hash 9f2c... --evict mallory --yes

exit codes:
  0    signed
  2    shown only, or refused
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from veilsum.roles.commands.roster.changes import (
    NOT_SIGNED,
    add_change_arguments,
    describe_anchor,
    organiser_folder,
    report,
)

if TYPE_CHECKING:
    from veilsum.protocol.agreed.anchor import Anchor
    from veilsum.roles.federation.folder import LoadedFederation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_arguments(parser)
    parser.add_argument(
        "--position",
        metavar="P",
        type=int,
        help="the last position that the parties hold, 0 for the first model",
    )
    parser.add_argument("--state-hash", metavar="HEX", help="the hash of the state at that position")
    parser.add_argument(
        "--from",
        dest="holders",
        metavar="NAME",
        action="append",
        default=[],
        help="take both from the state folder of this party, DIR/state/NAME; may be repeated",
    )
    parser.add_argument("--evict", metavar="NAME", help="a party that goes")
    parser.add_argument(
        "--electorate",
        metavar="NAMES",
        help="who may vote there, with commas between (default: every participant that stays)",
    )
    parser.add_argument("--yes", action="store_true", help="sign it")


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import sign_checkpoint
    from veilsum.roles.federation.signed_roster import ROSTER_FILE, read_roster

    anchor = _anchor(args)
    if not args.yes:
        before = read_roster(args.folder / ROSTER_FILE)
        gone = f"without {args.evict}, " if args.evict else ""
        sys.stdout.write(
            f"to be signed as version {before.version + 1}, {gone}in place of version {before.version}:\n"
            f"{describe_anchor(anchor)}\n"
            "the server may then compare two nearly equal sums of this position, and you vouch that nobody goes on "
            f"under version {before.version}; nothing was signed: add --yes\n"
        )
        return NOT_SIGNED
    signed = sign_checkpoint(args.folder, organiser_folder(args), anchor, args.evict)
    return report(signed, args.folder, f"checkpoint at position {anchor.position}")


def _anchor(args: argparse.Namespace) -> Anchor:
    """What is asked for, if it can be signed under the signed settings; nothing that they name is loaded for it."""
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.federation.anchoring import checkpoint_anchor
    from veilsum.roles.federation.folder import load_federation

    loaded = load_federation(args.folder)
    roster = loaded.roster
    if args.evict is not None and args.evict not in roster.participants:
        raise ParameterError([f"{args.evict} is no participant: there are {', '.join(roster.participants)}"])
    staying = tuple(name for name in roster.participants if name != args.evict)
    electorate = staying if args.electorate is None else tuple(args.electorate.split(","))
    strangers = sorted(set(electorate) - set(staying))
    if strangers:
        raise ParameterError([f"--electorate: {', '.join(strangers)} will not be on the roster"])
    position, state_hash = _held(args, loaded) if args.holders else _given(args)
    return checkpoint_anchor(roster.anchor, position, state_hash, electorate, loaded.config.cohort_floor)


def _given(args: argparse.Namespace) -> tuple[int, bytes]:
    """Position and state as the command line has them."""
    from veilsum.protocol.errors import ParameterError

    if args.position is None or args.state_hash is None:
        raise ParameterError(["which position? Give --from NAME, or both --position and --state-hash"])
    try:
        return args.position, bytes.fromhex(args.state_hash)
    except ValueError:
        raise ParameterError([f"--state-hash: {args.state_hash!r} is not hexadecimal"]) from None


def _held(args: argparse.Namespace, loaded: LoadedFederation) -> tuple[int, bytes]:
    """Position and state as the named parties have them on disk, if they agree."""
    from veilsum.protocol.errors import LocalProtocolError, ParameterError
    from veilsum.roles.process.held_model import held_position

    if args.position is not None or args.state_hash is not None:
        raise ParameterError(["--from says position and state: leave out --position and --state-hash"])
    try:
        held = {name: held_position(loaded, name) for name in args.holders}
    except LocalProtocolError as refusal:
        raise ParameterError([f"--from: {refusal}"]) from refusal
    if len(set(held.values())) > 1:
        told = "; ".join(f"{name}: position {at}, state {state.hex()}" for name, (at, state) in held.items())
        raise ParameterError([f"--from: they hold different states: {told}; name those who go on together"])
    return next(iter(held.values()))
