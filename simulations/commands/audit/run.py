"""Play a small federation, take what one adversary saw, and attack it.

    veilsum audit run --scheme ampc --adversary server --attack idlg --scale smoke --html report.html
    veilsum audit run --scheme masked --adversary server --attack idlg
    veilsum audit run --scheme plain --defence spn:alpha2=0.1 --attack spn-adaptive
    veilsum audit run --scheme masked --images 16 --fail-on leaks
    veilsum audit run --view server.view --attack idlg --html report.html
    veilsum audit run --view server.view --view p1.view --attack ampc-coalition

Where an attack rebuilds images it is made twice: with one image behind each update, the worst case, and with a
realistic batch of 16. `--images` chooses other numbers.

Every table has the undefended row (plain FedAvg), a null row (the attack on noise) and an oracle row (the attacker is
given the secret), so that "defended" and "the attack did not converge" are told apart. Ctrl-C keeps the rows
done so far.

A recorded view is what a process wrote with --record-view (or `launch --record-views`), or this command with
--save-view. Several views of one run are attacked as those of a coalition. Name with --images how many images stand
behind one update; what the view fixes itself (adversary, defence, task, parties ...) cannot be named beside it.

--fail-on leaks ends with exit code 3 if a verdict is LEAKS, for CI: 0 nothing leaks, 1 something could not be judged,
2 the request cannot work, 3 leaks. On a recorded view it is 3 or 1: without the truth nothing can be found safe.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.errors import ParameterError, ProtocolError
from veilsum.roles.cli.completion import offer
from veilsum.roles.cli.output import file_target
from veilsum.simulations.commands.audit.gate import add_gate_options, require_gate
from veilsum.simulations.commands.audit.names import ADVERSARIES, ATTACKS
from veilsum.simulations.commands.audit.options import (
    add_common_arguments,
    publish_outcome,
    require_targets,
)

if TYPE_CHECKING:
    from veilsum.roles.views.view import View
    from veilsum.simulations.audit.request import Request
    from veilsum.simulations.audit.runner import Outcome

FIXED_BY_A_VIEW = {
    "adversary": "server",
    "defence": "",
    "task": "digits",
    "data": None,
    "model": None,
    "parties": 4,
    "rounds": 1,
    "local_epochs": 0,
    "save_view": None,
}
"""Settings of the federation that is played, with their defaults; a recorded view was played with its own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheme", default="plain", metavar="SCHEME", help="the scheme to attack (default plain)"
    )
    parser.add_argument(
        "--defence", metavar="DEFENCE", help="a defence in training, e.g. dp:sigma=0.01 (default none)"
    )
    adversary = parser.add_argument(
        "--adversary",
        metavar="WHO",
        help="server, client, peer, broker, coalition, others or NAME+NAME (default server)",
    )
    offer(adversary, ADVERSARIES)
    attack = parser.add_argument(
        "--attack", default="idlg", metavar="ATTACK", help="see `veilsum audit list` (default idlg)"
    )
    offer(attack, ATTACKS)
    parser.add_argument("--model", metavar="MODEL", help="an architecture other than the attack's own")
    parser.add_argument("--parties", type=int, metavar="N", help="how many parties (default 4)")
    parser.add_argument(
        "--images",
        type=image_counts,
        metavar="N[,N]",
        help="training images of a party, each number attacked by itself (default 1,16: the worst case and a realistic "
        "batch; 1 for attacks that no batch changes and for recorded views)",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds to play (default 1)")
    parser.add_argument(
        "--local-epochs",
        type=int,
        metavar="N",
        help="local steps of a round; 0 uploads one gradient (default 0)",
    )
    parser.add_argument(
        "--save-view", metavar="FILE", type=file_target, help="also write the attacked view to a file"
    )
    parser.add_argument(
        "--view",
        metavar="FILE",
        type=Path,
        action="append",
        help="attack a recorded view, or the pooled views of a coalition (repeat the flag); without the truth, "
        "nothing is measured",
    )
    add_common_arguments(parser)
    add_gate_options(parser)
    # None tells what was not asked for from what was asked for as it is by default.
    parser.set_defaults(task=None)


def image_counts(text: str) -> list[int]:
    """One or several numbers with commas between."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text} is not a number of images, or several such as 1,16")
    return list(dict.fromkeys(map(int, parts)))


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.audit.fits import require_fit
    from veilsum.simulations.audit.request import Request
    from veilsum.simulations.audit.scales import find_scale

    require_gate(args)
    if args.view is not None:
        _require_nothing_fixed(args)
    for name, value in FIXED_BY_A_VIEW.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    request = Request(
        scheme=args.scheme,
        adversary=args.adversary,
        attack=args.attack,
        scale=find_scale(args.scale),
        seed=args.seed,
        defence=args.defence,
        task=args.task,
        data=args.data,
        model=args.model,
        parties=args.parties,
        images=args.images[0] if args.images else 1,
        payload="delta" if args.local_epochs else "gradient",
        local_epochs=args.local_epochs or 1,
        rounds=args.rounds,
    )
    require_targets(args)
    if args.view is not None:
        return _attack_recorded(args, request)
    requests = _batches(request, args.images)
    for one in requests if args.images else requests[:1]:
        require_fit(one)
    if args.save_view is not None:
        from veilsum.roles.views.file import save_view

        save_view(next(request.stages()).view(args.adversary), args.save_view)
    title = f"Audit: {args.attack} on the view of {args.adversary} under {args.scheme}"
    return publish_outcome(_attack_played(requests, by_default=not args.images), title, args)


def _batches(request: Request, counts: Sequence[int] | None) -> list[Request]:
    """The same request for every number of images; if none was named, for a realistic batch, too, where it matters."""
    from dataclasses import replace

    from veilsum.simulations.audit.report.verdicts import REALISTIC_IMAGES

    if counts:
        return [replace(request, images=count) for count in counts]
    entry = request.entry
    if not entry.needs_gradient or entry.needs_rounds or entry.heavy:
        return [request]
    return [
        request,
        replace(request, images=REALISTIC_IMAGES, scale=replace(request.scale, draws=1)),
    ]


def _attack_played(requests: Sequence[Request], by_default: bool) -> Outcome:
    """All rows; a batch that nobody asked for and that cannot be attacked is told, and does not end the command."""
    from veilsum.simulations.audit.runner import run_requests

    outcome = run_requests(requests[:1], progress=True)
    for one in requests[1:]:
        if outcome.interrupted:
            break
        try:
            outcome.add(run_requests([one], progress=True))
        except ProtocolError as error:
            if not by_default:
                raise
            outcome.failed.append(f"{one.images} images of each party could not be attacked: {error}")
    return outcome


def _require_nothing_fixed(args: argparse.Namespace) -> None:
    """Refuse what a recorded view would silently overrule."""
    asked = [name for name in FIXED_BY_A_VIEW if getattr(args, name) is not None]
    problems = [f"--{name.replace('_', '-')} is fixed by the recorded view: leave it out" for name in asked]
    if args.images and len(args.images) > 1:
        problems.append("--images must be one number beside --view: so many images stand behind one update")
    if problems:
        raise ParameterError(problems)


def _attack_recorded(args: argparse.Namespace, request: Request) -> int:
    from veilsum.roles.config.schemes import load_scheme
    from veilsum.roles.views.view import pool
    from veilsum.simulations.audit.recorded import attack_view

    load_scheme(args.scheme)  # Messages of a scheme from outside can be read once its module is loaded.
    views = [_load(path) for path in args.view]
    outcome = attack_view(views[0] if len(views) == 1 else pool(views), request)
    names = ", ".join(path.name for path in args.view)
    title = f"Audit: {args.attack} on the recorded view {names}"
    return publish_outcome(
        outcome, title, args, data=str(views[0].facts.settings.get("task", "unknown data"))
    )


def _load(path: Path) -> View:
    from veilsum.roles.views.file import load_view

    try:
        return load_view(path)
    except OSError as error:
        raise ParameterError([f"--view {path} cannot be read: {error.strerror}"]) from error
