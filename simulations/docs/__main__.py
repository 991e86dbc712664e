"""Writes the generated pages: `python -m veilsum.simulations.docs specs`."""

from __future__ import annotations

import sys

from veilsum.simulations.docs.machines import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
