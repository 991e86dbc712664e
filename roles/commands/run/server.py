"""Run the server of a federation: it opens sessions and rounds, and sums what it may see.

The server needs federation.toml, roster.json, the key folder of the identity `server`, and the broker. It trains
nothing and loads no torch. It waits for the first parties as long as `patience_s` says; start order does not matter.

examples:
  veilsum server fed/federation.toml
  veilsum server fed/federation.toml --key /etc/veilsum/server --resume --log-format json

exit codes:
  0    the run has all its rounds
  1    the run failed; the last line says why, and --resume can go on from the last committed round
  2    settings, roster or keys do not fit; nothing was sent
  130  stopped by SIGINT or SIGTERM
"""

from __future__ import annotations

import argparse

from veilsum.roles.cli.role_flags import add_role_arguments, run_with_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_role_arguments(parser, trains=False)


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.crypto.identity import Role

    return run_with_arguments(Role.SERVER, args)
