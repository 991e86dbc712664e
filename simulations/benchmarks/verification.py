"""What verified sums and votes add to a round, timed in the round itself: a ratio that a busy machine leaves alone.

The functions below are what a party does besides, compared with a server that is believed: it tags its upload, checks
the opened sum against the tags, decodes it and takes the step itself, hashes the state, votes, and verifies the votes
of others; the server counts votes. Each is wrapped while the round runs, and one that another one calls counts once.
A party that is handed the next model must hash that, too: what is counted here is therefore an upper bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from veilsum.protocol.schemes.ampc.ballots import BallotPair
from veilsum.protocol.secure_sum.certifying import ResultVotes, SumCheck
from veilsum.protocol.secure_sum.verification import AttemptTags

ADDED: tuple[tuple[type[Any], str], ...] = (
    (AttemptTags, "limbs_for"),
    (AttemptTags, "require_sum"),
    (SumCheck, "_check"),
    (SumCheck, "vote"),
    (SumCheck, "_proved"),
    (ResultVotes, "add"),
    (BallotPair, "digest"),
    (BallotPair, "cast"),
    (BallotPair, "add"),
)


class AddedTime:
    """CPU seconds inside the functions that verification adds."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._depth = 0

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **named: Any) -> Any:
            started = time.process_time()
            self._depth += 1
            try:
                return work(*given, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.cpu_s += time.process_time() - started

        return measured

    def ratio(self, total_cpu_s: float) -> float:
        """All that was done over what would have been done without."""
        return total_cpu_s / (total_cpu_s - self.cpu_s)


@contextmanager
def added_time() -> Iterator[AddedTime]:
    """Time the functions of `ADDED` until the end of the block."""
    added = AddedTime()
    before = [(owner, name, getattr(owner, name)) for owner, name in ADDED]
    for owner, name, work in before:
        setattr(owner, name, added.timed(work))
    try:
        yield added
    finally:
        for owner, name, work in before:
            setattr(owner, name, work)
