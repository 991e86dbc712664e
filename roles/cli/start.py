"""Where the `veilsum` command begins: signals are in hand before anything of ours is imported."""

from __future__ import annotations

import sys

from veilsum.roles.cli import signals


def main() -> int:
    """The command with the words of this process."""
    signals.begin(sys.argv[1:])
    from veilsum.roles.cli.main import main as command

    return command()
