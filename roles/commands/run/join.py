"""Join a federation with the file that its organiser sent: once to make keys, and again to take part.

The first time, the organiser reads twelve words to you on the telephone, and you type them (or give them with --words):
they tell whether the file is the organiser's. Keys are made here, in a folder of their own, and never leave. The
organiser is trusted from then on; your first model is made from the task that it signed, with your data. Send back the
enrolment file that the command names, and read its words to the organiser.

Then run the same command again: it waits until the organiser has enrolled you, takes the signed roster from the broker
(or from --roster FILE), and runs as the client or peer that the federation needs. It can be run again after any stop:
it goes on from its last checkpoint; after the last round it waits a minute for a server that may need what it holds. A
party that lost its state comes back with --fresh. What it tells stands in FOLDER/logs, too, so that veilsum page FOLDER
shows the run.

The invitation holds a password for the broker, which the one that you make here replaces when you are enrolled. Who
steals the file can knock at the broker as you until then, and read who is enrolled; he takes part in nothing, unless
the organiser enrols his keys without comparing the words with you.

examples:
  veilsum join alice.invite --data /data/ecg
  veilsum join alice.invite --data /data/ecg --words "lava dust ... (12 words)"
  veilsum join alice.invite --data /data/ecg --fresh
  veilsum join alice.invite --data /data/ecg --roster roster.json --device cuda:0

exit codes:
  0    joined, and the enrolment file is written; or the run has all its rounds
  1    the run failed; the last line says why
  2    the invitation, the words, the data or the roster do not fit; the message says what to do
  130  stopped by SIGINT, SIGTERM or SIGHUP
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.monitor.log_format import LOG_FORMATS

if TYPE_CHECKING:
    from veilsum.roles.invitations.joining import Place

TURN_S = 6.0
"""How long one that is not enrolled listens under one of its two logins."""
_LONGEST_NAME = 64
"""Nobody vouches for the name of a federation before the words do."""
NEWER_WITHIN_S = 3.0
"""How long one that is enrolled already looks for a newer roster."""
STAY_S = 60.0
"""How long one that has all rounds waits for a server, which may need what it holds."""
TRIES = 5
"""How often the words may be typed at a terminal."""


class NobodyHosts(LocalProtocolError):
    """No broker answers at the federation's address."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("invitation", metavar="FILE", type=Path, help="the invitation, NAME.invite")
    parser.add_argument("--data", type=Path, metavar="DIR", help="your data folder, if the task needs one")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where to settle (default: NAME, beside the invitation)"
    )
    parser.add_argument("--words", metavar="WORDS", help="the twelve words that the organiser read to you")
    parser.add_argument(
        "--init", type=Path, metavar="FILE", help="the first model, as safetensors, instead of the task's own"
    )
    parser.add_argument(
        "--roster", type=Path, metavar="FILE", help="the new roster.json, if it is not taken from the broker"
    )
    parser.add_argument(
        "--wait",
        type=float,
        metavar="S",
        default=900.0,
        help="how long to wait for the enrolment (default 900 seconds)",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="forget an earlier run, or come back after the state folder was lost; where parties vote on models, this "
        "one has no vote until it took part again, unless the organiser began another chain",
    )
    parser.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:INDEX or mps")
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="text", help="lines on standard error (default text)"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.invitations.invitation_file import read_invitation
    from veilsum.roles.invitations.joining import Place

    if not args.wait >= 0:
        raise ParameterError([f"--wait {args.wait:g} is no time to wait: give seconds, 0 or more"])

    invitation = read_invitation(args.invitation)
    place = Place(args.folder or args.invitation.parent / invitation.name, invitation)
    if not place.is_settled:
        place.require_good()
        _compare(place, args.words)
        from veilsum.roles.invitations.joining import settle

        settle(place)
    if not place.reply_file.exists():
        return _reply(place, args)
    return _take_part(place, args)


def _compare(place: Place, typed: str | None) -> None:
    """The organiser's words, typed by who heard them; to show them first would only let them be copied."""
    from veilsum.transport.printable import printable

    invitation = place.invitation
    if typed is not None:
        _require(place, typed)
    else:
        federation = printable(str(invitation.signed.agreed.get("name")))[:_LONGEST_NAME]
        sys.stderr.write(
            f"{invitation.name} is invited to {federation} as a {invitation.role}.\n"
            "Call the organiser, at a number that you know, and type the twelve words of the invitation: "
        )
        _ask(place)
    sys.stdout.write(f"the words are right: {invitation.words}\n")


def _ask(place: Place) -> None:
    """At a terminal a slip of the pen does not mean to begin again."""
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.invitations.words import WrongWords

    for left in reversed(range(TRIES if sys.stdin.isatty() else 1)):
        sys.stderr.flush()
        typed = sys.stdin.readline()
        if not typed.strip():
            raise ParameterError(
                [
                    "no words were typed: have the organiser read them to you, and give them here or with --words"
                ]
            )
        try:
            _require(place, typed)
            break
        except WrongWords as slip:
            if not left:
                raise
            sys.stderr.write(f"{slip}\nThe twelve words once more: ")


def _require(place: Place, typed: str) -> None:
    from veilsum.roles.invitations.words import require_words

    require_words(
        typed,
        place.invitation.words,
        "the invitation",
        "the file was changed on its way: have the organiser send it another way, and use nothing of this one",
    )


def _reply(place: Place, args: argparse.Namespace) -> int:
    from veilsum.roles.federation.beginning import MODEL_FILE
    from veilsum.roles.invitations.joining import write_reply
    from veilsum.roles.invitations.words import words_of_identity

    reply = write_reply(place, args.data, args.init)
    model = place.folder / MODEL_FILE
    besides = f", and {model} unless another party did" if model.exists() else ""
    sys.stdout.write(
        f"{place.folder}: keys of {reply.identity.role} {reply.identity.name}; they stay there\n"
        f"send the organiser {place.reply_file}{besides}: nothing in it is secret\n"
        f"and read to them:    {words_of_identity(reply.identity)}\n"
        "then run this command again: it waits until you are enrolled, and takes part\n"
    )
    return 0


def _take_part(place: Place, args: argparse.Namespace) -> int:
    from veilsum.roles.invitations.joining import entered, is_enrolled, take_roster
    from veilsum.roles.launch.children import LOGS_FOLDER
    from veilsum.roles.process.context import RoleOptions
    from veilsum.roles.process.run import run_role

    if args.roster is not None:
        take_roster(place, _content(args.roster), args.roster)
    known = is_enrolled(place, entered(place).signed)
    finished = known and not args.fresh and _has_all_rounds(place)
    if args.roster is None:
        try:
            known = _fetch(place, NEWER_WITHIN_S if known else args.wait, known, needed=not finished)
        except NobodyHosts as nobody:
            if not finished:
                raise
            sys.stdout.write(f"the run has all its rounds, and your model is here: {nobody}\n")
            return 0
    if not known:
        raise _not_enrolled(place, args.wait)
    options = RoleOptions(
        place.folder,
        place.invitation.name,
        key=place.keys,
        data=args.data,
        device=args.device,
        init=args.init,
        resume=not args.fresh,
        fresh=args.fresh,
        log_format=args.log_format,
        logs=place.folder / LOGS_FOLDER,
        stay_s=STAY_S,
    )
    return run_role(place.invitation.role, options)


def _has_all_rounds(place: Place) -> bool:
    """Whether the last model of the run is on disk."""
    import contextlib

    from veilsum.roles.invitations.joining import entered
    from veilsum.roles.process.held_model import held_model

    loaded = entered(place)
    with contextlib.suppress(LocalProtocolError):
        return held_model(loaded, place.invitation.name)[1] >= loaded.config.rounds
    return False


def _fetch(place: Place, within_s: float, known: bool, *, needed: bool = True) -> bool:
    """Take the roster that the broker hands out, once it lists us; whether we are enrolled then.

    The password of the invitation opens the broker until the enrolment, our own from then on: they are tried in turn.
    `needed` is whether a party that is enrolled goes on though no broker answers, and waits for it.
    """
    import asyncio
    import itertools

    from veilsum.roles.broker.notices import first_notice
    from veilsum.roles.invitations.joining import entered, is_enrolled, take_roster
    from veilsum.roles.process.clock import monotonic
    from veilsum.transport.errors import BrokerRefused, BrokerUnreachable

    told: list[str] = []
    here = entered(place)

    def accept(content: bytes) -> bool | None:
        try:
            signed = take_roster(place, content, place.folder / "roster from the broker")
        except LocalProtocolError as refusal:
            told[:] = [f"what the broker handed out was refused: {refusal}\n"]
            return None
        return is_enrolled(place, signed) or None

    name, give_up_at = place.invitation.name, monotonic() + within_s
    logins = [place.keys] if known else [place.waiting_login, place.keys]
    if not known:
        sys.stderr.write(
            f"waiting at the broker {here.config.broker_host}:{here.config.broker_port} until the organiser has "
            f"enrolled {name}, up to {within_s:g} s\n"
        )
        sys.stderr.flush()
    refused: dict[Path, BrokerRefused] = {}
    nobody: BrokerUnreachable | None = None
    reached = False
    for login in itertools.cycle(logins):
        left = give_up_at - monotonic()
        if left <= 0:
            break
        try:
            if asyncio.run(first_notice(here, name, login, accept, min(left, TURN_S))):
                return True
            refused.clear()
            reached = True
        except BrokerRefused as refusal:
            refused[login], reached = refusal, True
        except BrokerUnreachable as trouble:
            nobody = trouble
        if len(refused) == len(logins):
            raise _shut_out(refused[login])
    sys.stderr.writelines(told)
    if nobody is not None and not reached and not (known and needed):
        raise NobodyHosts(str(nobody) if known else _no_broker(place, str(nobody)))
    return known


def _shut_out(refusal: Exception) -> Exception:
    from veilsum.protocol.errors import ParameterError

    return ParameterError(
        [
            f"{refusal}; if it is the login, the invitation was revoked or replaced, or you were evicted: ask the "
            "organiser"
        ]
    )


def _not_enrolled(place: Place, waited_s: float) -> Exception:
    from veilsum.protocol.errors import ParameterError

    return ParameterError(
        [
            f"{place.invitation.name} is not enrolled after {waited_s:g} s, or nobody hosts the federation: send the "
            f"organiser {place.reply_file}, and run this again when they say that they host the federation; or give "
            "the new roster.json with --roster"
        ]
    )


def _no_broker(place: Place, trouble: str) -> str:
    return (
        f"{trouble}; send the organiser {place.reply_file}, and run this again when they host the federation (veilsum "
        "host), or ask them whether your network reaches that address"
    )


def _content(path: Path) -> bytes:
    from veilsum.protocol.errors import ParameterError

    try:
        return path.read_bytes()
    except OSError as error:
        raise ParameterError([f"--roster {path}: {error.strerror}"]) from error
