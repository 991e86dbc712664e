"""How a process starts another of the same installation, from whatever folder and with whatever path."""

from __future__ import annotations

import sys
from pathlib import Path

import veilsum.roles

COMMAND = "veilsum"
"""The module that is the `veilsum` command."""
_AGAIN = Path(veilsum.roles.__path__[0]) / "launch" / "again.py"


def our_python(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours in a fresh Python."""
    return [sys.executable, "-P", str(_AGAIN), module, *arguments]
