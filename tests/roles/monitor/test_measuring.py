"""Measuring the common model: when a party does it, what it may cost, and that it ends no run."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import LocalUpdate, sha256_of
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.measuring import SHARE_OF_TIME, Measuring, Turn

MODEL = np.ones(3, dtype=np.float32)
EVERY_ROUND = Turn()


@dataclass
class CostlyLearner:
    """Measuring takes so many seconds of a clock that stands still otherwise."""

    costs_s: float
    metrics: dict[str, float] = field(default_factory=lambda: {"accuracy": 0.5})
    error: Exception | None = None
    now: float = 1000.0
    asked: int = 0

    def initial_model(self) -> Model:
        return MODEL

    def train(self, model: Model, round: int) -> LocalUpdate:
        return LocalUpdate(model, 1, 0.0)

    def evaluate(self, model: Model) -> dict[str, float]:
        self.asked += 1
        self.now += self.costs_s
        if self.error is not None:
            raise self.error
        return self.metrics


async def aside(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    return work()


def measure(
    learner: CostlyLearner, rounds: int, *, turn: Turn = EVERY_ROUND, round_s: float = 1.0, last: bool = False
) -> list[dict[str, Any]]:
    """What a party says while it goes through so many rounds."""
    told = io.StringIO()

    async def run() -> None:
        measuring = Measuring(
            learner, RoleLog("p1", "json", told), turn, clock=lambda: learner.now, cost=lambda: learner.now
        )
        for done in range(1, rounds + 1):
            learner.now += round_s
            await measuring.now_or_never(done, MODEL, aside)
        if last:
            await measuring.at_last(rounds, MODEL, aside)

    asyncio.run(run())
    return [json.loads(line) for line in told.getvalue().splitlines()]


def rounds_of(told: list[dict[str, Any]]) -> list[int]:
    return [one["round"] for one in told if one["fact"] == "measured"]


def test_what_costs_next_to_nothing_is_measured_after_every_round() -> None:
    told = measure(CostlyLearner(0.01), 6, round_s=0.02)
    assert rounds_of(told) == [1, 2, 3, 4, 5, 6]
    assert told[0]["metrics"] == {"accuracy": 0.5}
    assert told[0]["model_sha256"] == sha256_of(MODEL)


@pytest.mark.parametrize("of", [1, 4])
def test_what_costs_much_stays_within_its_share_of_the_time(of: int) -> None:
    """After the first, which is free because nobody knows yet what it costs."""
    learner = CostlyLearner(2.0)
    began = learner.now
    told = measure(learner, 400, turn=Turn(0, of))
    assert 1 < len(rounds_of(told)) <= 1 + SHARE_OF_TIME / of * (learner.now - began) / 2.0


def test_the_last_model_is_measured_whatever_it_costs() -> None:
    assert rounds_of(measure(CostlyLearner(100.0), 5, last=True)) == [1, 5]


def test_parties_of_one_machine_measure_each_round_once() -> None:
    told = [rounds_of(measure(CostlyLearner(0.0), 9, turn=Turn(number, 3))) for number in range(3)]
    assert sorted(number for one in told for number in one) == list(range(1, 10))


def test_a_task_that_fails_to_measure_ends_no_run_and_is_asked_no_more() -> None:
    learner = CostlyLearner(0.0, error=ZeroDivisionError("no test set"))
    told = measure(learner, 5, last=True)
    assert [one["fact"] for one in told] == ["warning"]
    assert "no test set" in told[0]["text"]
    assert learner.asked == 1


def test_a_task_without_a_metric_says_nothing_and_is_asked_once() -> None:
    learner = CostlyLearner(0.0, metrics={})
    assert measure(learner, 5, last=True) == []
    assert learner.asked == 1


def test_what_is_not_finite_is_left_out() -> None:
    told = measure(CostlyLearner(0.0, metrics={"accuracy": 0.5, "loss": float("nan")}), 1)
    assert told[0]["metrics"] == {"accuracy": 0.5}


@pytest.mark.parametrize("tells", [False, True])
def test_a_status_says_what_came_of_it_only_where_the_organiser_signed_that(tells: bool) -> None:
    async def run() -> dict[str, Any]:
        measuring = Measuring(CostlyLearner(0.0), RoleLog("p1", "json", io.StringIO()), tells=tells)
        await measuring.now_or_never(1, MODEL, aside)
        return measuring.for_status()

    assert asyncio.run(run()) == ({"measured": 1, "metrics": {"accuracy": 0.5}} if tells else {})


def test_a_federation_tells_no_metrics_by_default_and_telling_them_is_signed() -> None:
    silent, telling = FederationConfig(), FederationConfig(tell_metric=True)
    assert "tell_metric" not in silent.agreed()
    assert telling.agreed() == silent.agreed() | {"tell_metric": True}
    assert telling.agreed_digest != silent.agreed_digest
