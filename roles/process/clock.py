"""The clock of role processes: seconds that never run backwards, whatever happens to the date.

Machines compare these seconds with each other only, so a corrected or wrong date of the machine decides
nothing. Simulations bring their own, virtual clock.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]


def date() -> float:
    """Seconds since 1970 by the machine's clock, for what people or other machines compare; it may be wrong."""
    return time.time()


def told_time() -> str:
    """The date as facts tell it, of logs and of what is no log yet: ISO 8601, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def monotonic() -> float:
    """Seconds since some moment in the past; the same ones that asyncio's timers count on."""
    return time.monotonic()


def thread_cpu() -> float:
    """Seconds of a processor that the calling thread has used."""
    return time.thread_time()
