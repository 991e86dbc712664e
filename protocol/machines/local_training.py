"""A party's training of one round: asked for once, and given to whichever attempt waits for it.

What it hands on is weighed: as many samples as the agreed rule lets an update count for.

An attempt may end while its training still runs. The next attempt of the round, from the same model, needs the very
same result: so the request stays out, the result is kept, and nobody trains twice.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from veilsum.protocol.agreed.parameters import Weights
from veilsum.protocol.errors import LocalProtocolError, ProtocolError
from veilsum.protocol.machines.events import Event, TrainingRequested
from veilsum.protocol.numbers.model import LocalResult, Model

Which: TypeAlias = tuple[int, bytes]
"""The round, and the hash of the model it starts from."""


class LocalTraining:
    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._done: tuple[Which, LocalResult] | None = None
        self._out: Which | None = None
        self._then: Callable[[LocalResult, float], list[Event]] | None = None
        self._failed: Callable[[ProtocolError, float], list[Event]] | None = None

    def request(
        self,
        which: Which,
        model: Model,
        then: Callable[[LocalResult, float], list[Event]],
        failed: Callable[[ProtocolError, float], list[Event]],
        now: float,
    ) -> list[Event]:
        """The result at once if it is here; else it goes to the latest that asked, as soon as it comes."""
        if self._done is not None and self._done[0] == which:
            return then(self._done[1], now)
        self._then, self._failed = then, failed
        if self._out == which:
            return []
        self._out = which
        return [
            TrainingRequested(
                which[0],
                model,
                lambda result, later: self._finished(which, len(model), result, later),
                lambda error, later: self._gave_up(which, error, later),
            )
        ]

    def forget(self) -> None:
        """The round is over: neither its result nor a result that is still out is of use."""
        self._done = self._out = self._then = self._failed = None

    def _finished(self, which: Which, length: int, result: LocalResult, now: float) -> list[Event]:
        if self._out != which:
            return []
        if len(result.payload) != length:
            told = f"training gave {len(result.payload)} values for a model of {length}: correct learner or defence"
            return self._gave_up(which, LocalProtocolError(told), now)
        weighed = self._weights.weigh(result)
        then, self._done, self._out = self._then, (which, weighed), None
        return then(weighed, now) if then is not None else []

    def _gave_up(self, which: Which, error: ProtocolError, now: float) -> list[Event]:
        if self._out != which:
            return []
        failed, self._out = self._failed, None
        return failed(error, now) if failed is not None else []
