"""What verified sums, votes and own steps add to a round, timed in the round itself, as ratios.

Two things are told apart. Verification: a party tags its upload, checks the opened sum against the tags, votes, and
verifies the votes of others; the server counts votes. The own step: a party decodes the sum and steps from it itself,
where it was handed the next model before; either way it hashes one model. Each function is wrapped while the round
runs, and time inside one that another one calls counts for the inner one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from veilsum.protocol.schemes.ampc.ballots import BallotPair
from veilsum.protocol.secure_sum.certifying import ResultVotes, SumCheck
from veilsum.protocol.secure_sum.verification import AttemptTags

VERIFICATION: tuple[tuple[type[Any], str], ...] = (
    (AttemptTags, "limbs_for"),
    (AttemptTags, "require_sum"),
    (SumCheck, "vote"),
    (SumCheck, "_proved"),
    (ResultVotes, "add"),
    (BallotPair, "digest"),
    (BallotPair, "cast"),
    (BallotPair, "add"),
)
OWN_STEP: tuple[tuple[type[Any], str], ...] = ((SumCheck, "_check"),)


class AddedTime:
    """CPU seconds inside the functions that are added, by what they are for."""

    def __init__(self) -> None:
        self._spent = {"verification": 0.0, "own step": 0.0}
        self._running: list[tuple[str, float]] = []

    def timed(self, purpose: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **named: Any) -> Any:
            self._running.append((purpose, time.process_time()))
            try:
                return work(*given, **named)
            finally:
                self._note()

        return measured

    def _note(self) -> None:
        purpose, began = self._running.pop()
        taken = time.process_time() - began
        self._spent[purpose] += taken
        if self._running:
            outer, since = self._running[-1]
            self._running[-1] = outer, since + taken

    def verified_over_unverified(self, total_cpu_s: float) -> float:
        """A round with tags, checks and votes over one without; both with own steps."""
        return total_cpu_s / (total_cpu_s - self._spent["verification"])

    def own_step_over_given(self, total_cpu_s: float) -> float:
        """A round in which each party steps itself over one in which it is handed the model; both verified."""
        return total_cpu_s / (total_cpu_s - self._spent["own step"])


@contextmanager
def added_time() -> Iterator[AddedTime]:
    """Time the functions that are added until the end of the block."""
    added = AddedTime()
    purposes = {"verification": VERIFICATION, "own step": OWN_STEP}
    before = [
        (purpose, owner, name, getattr(owner, name))
        for purpose, functions in purposes.items()
        for owner, name in functions
    ]
    for purpose, owner, name, work in before:
        setattr(owner, name, added.timed(purpose, work))
    try:
        yield added
    finally:
        for _, owner, name, work in before:
            setattr(owner, name, work)
