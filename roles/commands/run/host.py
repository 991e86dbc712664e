"""Run the broker and the server of a federation on this machine, and hand the signed roster out to who joins.

It takes DIR/broker and DIR/keys/server, as `veilsum init` and `veilsum invite` leave them. Parties that were invited
and enrolled take the roster from the broker while this runs, and begin. After `veilsum roster add`, `evict` or `sign`
the broker lets in whom it is to; the server takes part under the roster that it started with, so start this again. It
goes on from the last checkpoint, if there is one. What the server tells stands in DIR/logs, too, so that veilsum page
DIR shows the run, with the statuses of the parties while it goes on.

examples:
  veilsum host fed
  veilsum host fed --log-format json

exit codes:
  0    the run has all its rounds
  1    the run failed, or the broker did not start; the last line says why
  2    settings, roster or keys do not fit
  130  stopped by SIGINT, SIGTERM or SIGHUP
"""

from __future__ import annotations

import argparse
from pathlib import Path

from veilsum.roles.monitor.log_format import LOG_FORMATS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument("--fresh", action="store_true", help="forget an earlier run")
    parser.add_argument(
        "--embedded", action="store_true", help="the embedded broker, even if mosquitto is there"
    )
    parser.add_argument(
        "--init", type=Path, metavar="FILE", help="the model before the first round, as safetensors"
    )
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="text", help="lines on standard error (default text)"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.crypto.identity import Role
    from veilsum.protocol.identifiers import SERVER
    from veilsum.roles.config.file import settings_file
    from veilsum.roles.launch.children import LOGS_FOLDER
    from veilsum.roles.launch.hosting import hosting
    from veilsum.roles.process.context import RoleOptions, enter_role
    from veilsum.roles.process.run import run_role

    _require_keys(args.folder)
    options = RoleOptions(
        args.folder,
        SERVER,
        init=args.init,
        resume=not args.fresh,
        fresh=args.fresh,
        log_format=args.log_format,
        logs=settings_file(args.folder).parent / LOGS_FOLDER,
    )
    context = enter_role(Role.SERVER, options)
    with hosting(context.loaded, embedded=args.embedded, log_format=args.log_format):
        return run_role(Role.SERVER, options)


def _require_keys(folder: Path) -> None:
    """A federation without its server's keys has not invited anybody, or its server is elsewhere."""
    from veilsum.protocol.errors import ParameterError
    from veilsum.protocol.identifiers import SERVER
    from veilsum.roles.config.file import settings_file
    from veilsum.roles.federation.folder import KEYS_FOLDER
    from veilsum.roles.federation.keystore import PRIVATE_FILE

    here = settings_file(folder)
    keys = here.parent / KEYS_FOLDER / SERVER
    if here.exists() and not (keys / PRIVATE_FILE).exists():
        raise ParameterError(
            [
                f"{keys} holds no keys of the server: veilsum invite {here.parent} makes and enrols them, and invites "
                "the parties; where the server is enrolled with keys on another machine, host there"
            ]
        )
