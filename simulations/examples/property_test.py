"""A scheme at the table: whatever is lost, doubled, held back or restarted, its sum is right or absent.

The same two lines test a scheme of your own: name it in SCHEME (specs/testing.md).
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

import veilsum
from veilsum.simulations.testing import table_settings

SCHEME = "masked"


@settings(max_examples=10, deadline=None)
@given(table_settings(SCHEME), veilsum.schedules())
def test_the_sum_is_right_or_absent(chosen: dict[str, Any], schedule: Any) -> None:
    table = veilsum.Table.build(SCHEME, **chosen)
    table.start()
    veilsum.play(table, schedule)
    veilsum.check_invariants(table)


def main() -> None:
    test_the_sum_is_right_or_absent()
    print(f"{SCHEME}: no schedule broke an invariant")


if __name__ == "__main__":
    main()
