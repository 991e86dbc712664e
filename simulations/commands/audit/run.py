"""Play a small federation, take what one adversary saw, and attack it.

    veilsum audit run --scheme ampc --adversary server --attack idlg --scale smoke --html report.html
    veilsum audit run --scheme masked --adversary server --attack idlg
    veilsum audit run --scheme plain --defence spn:alpha2=0.1 --attack spn-adaptive
    veilsum audit run --view server.view --attack idlg --html report.html
    veilsum audit run --view server.view --view p1.view --attack ampc-coalition

Every table has the undefended row (plain FedAvg), a null row (the attack on noise) and an oracle row (the attacker is
given the secret), so that "defended" and "the attack did not converge" are told apart. Ctrl-C keeps the rows
done so far.

A recorded view is what a process wrote with --record-view (or `launch --record-views`), or this command with
--save-view. Several views of one run are attacked as those of a coalition. Name with --images how many images stand
behind one update.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.roles.cli.completion import offer
from veilsum.roles.cli.output import file_target
from veilsum.simulations.commands.audit.names import ADVERSARIES, ATTACKS
from veilsum.simulations.commands.audit.options import (
    add_common_arguments,
    publish_outcome,
    require_targets,
)

if TYPE_CHECKING:
    from veilsum.simulations.audit.request import Request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheme", default="plain", metavar="SCHEME", help="the scheme to attack (default plain)"
    )
    parser.add_argument(
        "--defence",
        default="",
        metavar="DEFENCE",
        help="a defence in training, e.g. dp:sigma=0.01 (default none)",
    )
    adversary = parser.add_argument(
        "--adversary",
        default="server",
        metavar="WHO",
        help="server, client, peer, broker, coalition, others or NAME+NAME (default server)",
    )
    offer(adversary, ADVERSARIES)
    attack = parser.add_argument(
        "--attack", default="idlg", metavar="ATTACK", help="see `veilsum audit list` (default idlg)"
    )
    offer(attack, ATTACKS)
    parser.add_argument("--model", metavar="MODEL", help="an architecture other than the attack's own")
    parser.add_argument("--parties", type=int, default=4, metavar="N", help="how many parties (default 4)")
    parser.add_argument(
        "--images", type=int, default=1, metavar="N", help="training images of a party (default 1)"
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="rounds to play (default 1)")
    parser.add_argument(
        "--local-epochs",
        type=int,
        default=0,
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


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.audit.fits import require_fit
    from veilsum.simulations.audit.request import Request
    from veilsum.simulations.audit.runner import run_requests
    from veilsum.simulations.audit.scales import find_scale

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
        images=args.images,
        payload="delta" if args.local_epochs else "gradient",
        local_epochs=args.local_epochs or 1,
        rounds=args.rounds,
    )
    require_targets(args)
    if args.view is not None:
        return _attack_recorded(args, request)
    require_fit(request)
    if args.save_view is not None:
        from veilsum.roles.views.file import save_view

        save_view(next(request.stages()).view(args.adversary), args.save_view)
    outcome = run_requests([request], progress=True)
    title = f"Audit: {args.attack} on the view of {args.adversary} under {args.scheme}"
    return publish_outcome(outcome, title, args)


def _attack_recorded(args: argparse.Namespace, request: Request) -> int:
    from veilsum.roles.config.schemes import load_scheme
    from veilsum.roles.views.file import load_view
    from veilsum.roles.views.view import pool
    from veilsum.simulations.audit.recorded import attack_view

    load_scheme(args.scheme)  # Messages of a scheme from outside can be read once its module is loaded.
    views = [load_view(path) for path in args.view]
    outcome = attack_view(views[0] if len(views) == 1 else pool(views), request)
    names = ", ".join(path.name for path in args.view)
    return publish_outcome(outcome, f"Audit: {args.attack} on the recorded view {names}", args)
