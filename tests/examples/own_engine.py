"""A simulation engine of one's own: parties train in threads, and the engine counts for whom it trained."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

from veilsum.roles.learning.contract import LocalUpdate
from veilsum.simulations.run.engine import Training


class CountingThreads:
    """Trains in a few threads at once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self.trained: Counter[str] = Counter()

    def submit(self, training: Training) -> Future[LocalUpdate]:
        self.trained[training.party] += 1
        return self._pool.submit(training.run)
