"""A role process that spoils every sum it is in: `python miscounting.py command arguments...`

It counts itself twice in what it uploads, tagged and masked like anybody's.
"""

from __future__ import annotations

import sys
from typing import Any

from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.roles.cli import main as cli


def count_twice() -> None:
    encode_into = FixedPoint.encode_into

    def lying(self: FixedPoint, words: Any, values: Any, samples: int) -> None:
        encode_into(self, words, values, samples)
        words[-1] += 1

    FixedPoint.encode_into = lying  # type: ignore[method-assign]  # the lie under test


if __name__ == "__main__":
    count_twice()
    sys.exit(cli.main(sys.argv[1:]))
