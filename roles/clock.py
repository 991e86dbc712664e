"""The clock of role processes: seconds that never run backwards, whatever happens to the date.

Machines compare these seconds with each other only, so a corrected or wrong date of the machine decides
nothing. Simulations bring their own, virtual clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]


def monotonic() -> float:
    """Seconds since some moment in the past; the same ones that asyncio's timers count on."""
    return time.monotonic()
