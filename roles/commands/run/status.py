"""Show where everyone in a federation is: round, phase, who is late, bytes; and how the rounds went.

Each process tells how it is doing once a second, signed with its identity key; this command listens for a moment
with the login of an observer and shows what verifies. It decides nothing and disturbs nobody. A login connects once
at a time: of those in DIR/keys/observer-* the first that nobody on this machine uses is taken. `veilsum roster
observer` makes more; give each machine its own.

Loss and metric of each round come from the logs in DIR/logs, which launch, host and join write (--logs names another
folder): statuses tell no loss, and the metric of the newest model only where the organiser signed tell_metric.

examples:
  veilsum status fed
  veilsum status fed --watch
  veilsum status fed --json -

exit codes:
  0    somebody was heard
  1    nobody was, or the broker cannot be reached
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.roles.cli.output import add_json_option

if TYPE_CHECKING:
    from veilsum.roles.federation.folder import LoadedFederation
    from veilsum.roles.monitor.watching import Board


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument(
        "--key",
        type=Path,
        metavar="DIR",
        help="the login to use (default: the first free of DIR/keys/observer-*)",
    )
    parser.add_argument(
        "--seconds", type=float, default=2.5, metavar="S", help="how long to listen (default 2.5)"
    )
    parser.add_argument(
        "--watch", action="store_true", help="go on until Ctrl-C, with a table every few seconds"
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="the folder with the logs (default: logs in the federation's folder)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    import asyncio

    from veilsum.protocol.errors import LocalProtocolError
    from veilsum.roles.broker.connect import observers_folder
    from veilsum.roles.cli.output import publish
    from veilsum.roles.federation.folder import load_federation
    from veilsum.roles.launch.children import LOGS_FOLDER
    from veilsum.roles.monitor.history import RunHistory
    from veilsum.roles.monitor.log_tail import LogTail
    from veilsum.roles.monitor.rounds_told import rounds_figures, rounds_table
    from veilsum.roles.monitor.watching import describe, figures_of
    from veilsum.transport.errors import BrokerUnreachable

    loaded = load_federation(args.folder)
    tail, history = LogTail(args.logs or loaded.folder / LOGS_FOLDER), RunHistory()
    with observers_folder(loaded, args.key) as login:
        while True:
            try:
                board = asyncio.run(_listen(loaded, login, args.seconds))
            except BrokerUnreachable as error:
                raise LocalProtocolError(f"{error}; start it with: veilsum broker {args.folder}") from error
            while history.take_all(tail.facts()):
                pass
            text = describe(loaded, board) + rounds_table(history)
            publish(text, figures_of(loaded, board) | {"rounds": rounds_figures(history)}, args.json)
            if not args.watch:
                return 0 if board.statuses else 1


async def _listen(loaded: LoadedFederation, login: Path, seconds: float) -> Board:
    """A link is made where it is used: it belongs to the event loop."""
    from veilsum.roles.broker.connect import observers_link
    from veilsum.roles.monitor.watching import listen

    return await listen(loaded, observers_link(loaded, login), seconds)
