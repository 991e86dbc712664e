"""How good the common model is, measured by a party that holds it, at a moment when nobody waits for that party.

After every round there is a model that could be measured on the task's test set; a large test set takes as long as
training does, and parties on one machine share its processors. So:

* a party measures after its own training of the next round, while it waits for the others, and once more at the end;
* what takes longer than a tenth of a second stays below a twentieth of its time, divided by those who take turns:
  rounds that come too fast for it are left out. The first measurement is free, because only it tells what one costs;
  so is the last;
* parties of one machine may take turns, one for each round.

Measuring reads a model and changes none: training and measuring wait for each other (roles/learning/training/
determinism.py). A task that cannot measure ends no run: the party says so once and measures no more.

What comes of it goes to the party's own log, and into its status only where the federation's settings say so.

Implements specs/page.md, section 2.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.contract import Learner, sha256_of
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.status import tellable
from veilsum.roles.process.clock import Clock, monotonic, thread_cpu

SHORT_S = 0.1
SHARE_OF_TIME = 1 / 20
LAST_WITHIN_S = 60.0
"""How long a process that has nothing else to do goes on for the last measurement."""

Aside = Callable[[Callable[[], dict[str, float]]], Awaitable[dict[str, float]]]
"""What runs something slow away from the event loop."""


@dataclass(frozen=True)
class Turn:
    """Which rounds a party measures: every one, or every `of`-th."""

    number: int = 0
    of: int = 1

    def has(self, rounds_done: int) -> bool:
        return rounds_done % self.of == self.number


@dataclass
class Measuring:
    """What a party does about it; `newest` are the last metrics and the number of rounds behind their model."""

    learner: Learner
    log: RoleLog
    turn: Turn = Turn()
    tells: bool = False
    """Whether statuses say what came of it."""
    clock: Clock = monotonic
    cost: Clock = thread_cpu
    """What a measurement costs is a processor's time, and not what others let it wait."""
    newest: tuple[int, Mapping[str, float]] | None = None
    _spent_s: float = 0.0
    _last_s: float = 0.0
    _measured: int = 0
    _ended: bool = False
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._one_at_a_time = asyncio.Lock()

    async def now_or_never(self, rounds_done: int, model: Model, aside: Aside) -> None:
        """Measure this model if it is our turn and there is time for it."""
        if not self._one_at_a_time.locked() and self._affordable():
            await self.at_last(rounds_done, model, aside)

    async def at_last(self, rounds_done: int, model: Model, aside: Aside) -> None:
        """Measure the model that the run ends with, whatever it costs, if it is our turn."""
        async with self._one_at_a_time:
            if rounds_done > self._measured and self.turn.has(rounds_done) and not self._ended:
                await self._measure(rounds_done, model, aside)

    def for_status(self) -> dict[str, Any]:
        """What a status says of the common model: nothing, unless the organiser signed that it does."""
        if self.newest is None or not self.tells:
            return {}
        return {"measured": self.newest[0], "metrics": tellable(self.newest[1])}

    def _affordable(self) -> bool:
        allowed = SHARE_OF_TIME / self.turn.of * (self.clock() - self._began)
        return self._last_s < SHORT_S or self._spent_s + self._last_s <= allowed

    async def _measure(self, rounds_done: int, model: Model, aside: Aside) -> None:
        costs: list[float] = []

        def evaluate() -> dict[str, float]:
            before = self.cost()
            metrics = self.learner.evaluate(model)
            costs.append(self.cost() - before)
            return metrics

        try:
            metrics = finite_metrics(await aside(evaluate))
        except Exception as error:  # noqa: BLE001 - code of the user's own: it must not end a run that trains
            self._ended = True
            self.log.say("warning", text=f"the model is not measured: {type(error).__name__}: {error}")
            return
        self._last_s = costs[0]
        self._spent_s += self._last_s
        self._measured = rounds_done
        if not metrics:
            self._ended = True
            return
        self.newest = (rounds_done, metrics)
        self.log.say("measured", round=rounds_done, metrics=metrics, model_sha256=sha256_of(model))


def finite_metrics(found: Mapping[str, float]) -> dict[str, float]:
    """Finite numbers under names; what is not finite is left out."""
    numbers = {str(name): float(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
