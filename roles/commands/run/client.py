"""Run a client: a party of a `plain`, `masked`, `perturbed` or `bilateral` federation that trains on its own data.

It needs federation.toml, roster.json, its key folder and the broker. It checks everything the server says for
itself. A client that was away joins the next round; start order does not matter.

examples:
  veilsum client fed/federation.toml --name alice --key /etc/veilsum/alice --data /srv/mnist
  veilsum client fed/federation.toml --name alice --resume --device cuda:0

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
    add_role_arguments(parser, trains=True)


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.crypto.identity import Role

    return run_with_arguments(Role.CLIENT, args)
