"""Look at a run in a browser: rounds, curves, phases, who is late, bytes, warnings; live, and afterwards.

The page is served on this machine alone, under an address that nobody can guess: whoever has the address can read it,
and nobody can change anything with it. It is made from the logs in DIR/logs, where `veilsum launch` and `veilsum host`
write them (`veilsum join` in the party's folder), and from the signed statuses of the processes, with the login of an
observer as in `veilsum status`. After the run the logs are enough. Roles that were started by hand leave such a log
with --log-format json and `2> DIR/logs/NAME.log`.

To read it from another machine: ssh -L 8000:127.0.0.1:8000 HOST, with --port 8000 here. With --html nothing is served:
the page is written as it is now, complete in one file.

examples:
  veilsum page fed
  veilsum page fed --port 8000
  veilsum page fed --html run.html

exit codes:
  0    ended by Ctrl-C, or the file is written
  2    no such federation, or the port is taken
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.roles.cli.output import file_target

if TYPE_CHECKING:
    from veilsum.roles.pages.follower import RunFollower

LISTEN_S = 2.5
SECRET_BYTES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument(
        "--port", type=int, default=0, metavar="PORT", help="the port to listen on (default: any free one)"
    )
    parser.add_argument(
        "--html",
        type=file_target,
        metavar="FILE",
        help="write the page as it is now to FILE, and serve nothing",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="the folder with the logs (default: logs in the federation's folder)",
    )
    parser.add_argument(
        "--key",
        type=Path,
        metavar="DIR",
        help="the observer's login to listen with (default: the first free of DIR/keys/observer-*)",
    )


def run(args: argparse.Namespace) -> int:
    import asyncio

    asyncio.run(_run(args))
    return 0


async def _run(args: argparse.Namespace) -> None:
    from veilsum.roles.cli.output_file import write_output
    from veilsum.roles.federation.folder import load_federation
    from veilsum.roles.launch.children import LOGS_FOLDER
    from veilsum.roles.pages.follower import RunFollower

    loaded = load_federation(args.folder)
    follower = RunFollower(loaded, args.logs or loaded.folder / LOGS_FOLDER, args.key)
    if args.html is not None:
        write_output(args.html, await follower.once(LISTEN_S))
    else:
        await _serve(follower, args.port)


async def _serve(follower: RunFollower, port: int) -> None:
    import base64
    import sys

    from veilsum.roles.pages.live import LivePage
    from veilsum.roles.pages.serving import LOOPBACK, open_port, serve
    from veilsum.roles.process.entropy import system_entropy

    listening = open_port(port)
    secret = base64.urlsafe_b64encode(system_entropy(SECRET_BYTES)).decode()
    page, port = LivePage(follower, secret), listening.getsockname()[1]

    def tell() -> None:
        sys.stdout.write(f"http://{LOOPBACK}:{port}/{secret}/\nCtrl-C ends it\n")
        sys.stdout.flush()

    async with follower.following():
        await serve(page.app(), listening, on_ready=tell, on_end=page.closing.set)
