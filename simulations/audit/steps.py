"""How far an audit is: requests one after the other, each in steps that it announces itself."""

from __future__ import annotations

from veilsum.roles.progress import Progress


class Steps:
    """Called with a note before each step; shows per cent and the remaining time."""

    def __init__(self, requests: int = 1, progress: Progress | None = None) -> None:
        self._requests = max(requests, 1)
        self._progress = progress
        self._finished = 0
        self._expected = 1
        self._done = 0

    def expect(self, steps: int) -> None:
        """So many steps are still to come in this request, as far as is known by now."""
        self._expected = self._done + max(steps, 1)

    def __call__(self, note: str) -> None:
        share = (self._finished + min(self._done / self._expected, 1.0)) / self._requests
        self._done += 1
        if self._progress is not None:
            self._progress.update(int(100 * share), f"% {note}")

    def next_request(self) -> None:
        self._finished += 1
        self._expected, self._done = 1, 0

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
