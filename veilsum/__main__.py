"""`python -m veilsum` is the `veilsum` command."""

import sys

from veilsum.roles.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
