"""Fair ratios on a busy machine.

Other work slows everything down in bursts. So the things to compare take turns, and each is judged by its
best turn in CPU seconds: a burst then spoils a turn of each, not all the turns of one.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Work = Callable[[], object]


def best_cpu_seconds(work: Mapping[str, Work], turns: int, calls: int = 1) -> dict[str, float]:
    """The CPU seconds of one call of each, at its best turn out of several taken alternately."""
    for job in work.values():
        job()
    best = dict.fromkeys(work, float("inf"))
    for _ in range(turns):
        for name, job in work.items():
            started = time.process_time()
            for _ in range(calls):
                job()
            best[name] = min(best[name], (time.process_time() - started) / calls)
    return best


def peak_extra_bytes(job: Work) -> int:
    """How far Python and numpy memory grows above its present size while the job runs."""
    gc.collect()
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Figure:
    """One number, what it means, and the limit it is held to, if there is one."""

    name: str
    value: float
    meaning: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        """Whether the limit holds; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    def row(self) -> tuple[str, str, str, str, str]:
        verdict = {True: "met", False: "NOT MET", None: ""}[self.met]
        return self.name, f"{self.value:.4g}", self.limit, verdict, self.meaning
