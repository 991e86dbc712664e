"""Writes the generated pages: `python -m veilsum.simulations.docs specs`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from veilsum.simulations.docs import machines, walk


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m veilsum.simulations.docs FOLDER\n")
        return 2
    folder = Path(arguments[0])
    machines.write_page(folder)
    walk.write_page(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
