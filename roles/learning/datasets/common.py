"""Small rules that all built-in tasks keep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import TaskOptions

TEST_FRACTION = 5


def held_out(count: int) -> npt.NDArray[np.bool_]:
    """Marks the test fifth of data that come without a test set; the same samples whatever the seed.

    The choice is random because files have an order: every fifth digit would mostly be a four or a nine.
    """
    marks = np.zeros(count, dtype=np.bool_)
    marks[generator(0, "held-out", count).permutation(count)[: count // TEST_FRACTION]] = True
    return marks


def refuse_argument(task: str, options: TaskOptions) -> None:
    """For tasks whose name takes nothing after a colon."""
    if options.argument is not None:
        raise TaskError(f"task {task} takes nothing after a colon, not {options.argument!r}")
