"""How far an audit is: jobs that announce their own steps, and one line about all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veilsum.roles.cli.progress import Progress

Report = Callable[[float, str], None]


class Steps:
    """Called by a job with a note before each of its steps; reports the share that is done."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._expected = 1
        self._done = 0

    def expect(self, steps: int) -> None:
        """So many steps are still to come, as far as is known by now."""
        self._expected = self._done + max(steps, 1)

    def __call__(self, note: str) -> None:
        share = min(self._done / self._expected, 1.0)
        self._done += 1
        if self._report is not None:
            self._report(share, note)


class Meter:
    """The shares of all jobs together, by weight, as per cent with the remaining time."""

    def __init__(self, weights: Sequence[float], progress: Progress | None = None) -> None:
        self._weights = weights
        self._done = [0.0] * len(weights)
        self._progress = progress
        self._words = ""

    def note(self, job: int, share: float, words: str = "") -> None:
        self._done[job] = share * self._weights[job]
        self._words = words or self._words
        if self._progress is not None:
            self._progress.update(int(100 * sum(self._done) / sum(self._weights)), f"% {self._words}")

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
