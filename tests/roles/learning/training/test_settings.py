"""Options of training: defaults that work, and impossible ones refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.learning.training.settings import TrainingOptions


def test_the_defaults_are_valid_for_every_payload() -> None:
    assert TrainingOptions(payload="model").epochs == 5
    assert TrainingOptions(payload="delta").epochs == 5
    assert TrainingOptions(payload="gradient").epochs == 1


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"optimizer": "rmsprop"}, "optimizer rmsprop sgd adam"),
        ({"payload": "weights"}, "payload weights model delta gradient"),
        ({"payload": "gradient", "gradient_batch": "half"}, "gradient_batch half full mini"),
        ({"schedule": "linear"}, "schedule linear constant"),
        ({"schedule": "step:every=0,factor=0.5"}, "schedule"),
        ({"schedule": "step:every=3,factor=0"}, "schedule"),
        ({"schedule": "step:every=3,factor=1.5"}, "schedule"),
        ({"schedule": "step:every=3,factor=1.2.3"}, "schedule"),
        ({"schedule": "cosine:rounds=0"}, "schedule"),
        ({"schedule": "cosine"}, "schedule"),
        ({"device": "gpu"}, "device gpu auto cpu cuda cuda:INDEX mps"),
        ({"learning_rate": 0.0}, "learning_rate positive"),
        ({"learning_rate": math.nan}, "learning_rate positive"),
        ({"learning_rate": math.inf}, "learning_rate positive"),
        ({"momentum": 1.0}, "momentum 1.0"),
        ({"momentum": 0.9, "optimizer": "adam"}, "momentum sgd"),
        ({"local_epochs": 0}, "local_epochs 1"),
        ({"batch_size": 0}, "batch_size 1 none"),
        ({"payload": "gradient", "local_epochs": 2}, "local_epochs 1 2"),
        ({"payload": "gradient", "optimizer": "adam"}, "optimizer sgd momentum 0"),
        ({"payload": "gradient", "momentum": 0.5}, "optimizer sgd momentum 0"),
        ({"payload": "gradient", "gradient_batch": "mini", "batch_size": None}, "batch_size"),
        ({"gradient_batch": "mini"}, "gradient_batch payload gradient"),
    ],
)
def test_each_impossible_option_is_refused_by_name(options: dict[str, Any], names: str) -> None:
    with pytest.raises(ParameterError) as caught:
        TrainingOptions(**options)
    assert len(caught.value.problems) == 1
    require_mentions(caught.value.problems[0], *names.split())


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ParameterError) as caught:
        TrainingOptions(optimizer="x", learning_rate=-1, momentum=2, local_epochs=0, batch_size=0, device="y")  # type: ignore[arg-type] # the wrong value is the point
    assert len(caught.value.problems) == 6


def test_step_multiplies_the_rate_after_every_so_many_rounds() -> None:
    options = TrainingOptions(learning_rate=0.8, schedule="step:every=10,factor=0.5")
    assert [options.learning_rate_at(r) for r in (0, 9, 10, 19, 20)] == [0.8, 0.8, 0.4, 0.4, 0.2]


def test_cosine_falls_from_the_full_rate_and_never_reaches_zero() -> None:
    options = TrainingOptions(learning_rate=1.0, schedule="cosine:rounds=4")
    rates = [options.learning_rate_at(round_) for round_ in range(8)]
    assert rates[0] == 1.0
    assert rates[2] == pytest.approx(0.5)
    assert rates[:4] == sorted(rates[:4], reverse=True)
    assert rates[4:] == [rates[3]] * 4
    assert rates[3] > 0


@given(st.integers(0, 10**6))
def test_a_constant_rate_is_constant(round_: int) -> None:
    assert TrainingOptions(learning_rate=0.3).learning_rate_at(round_) == 0.3


def test_rounds_before_zero_are_refused() -> None:
    with refusal(LocalProtocolError, "rounds", 0):
        TrainingOptions().learning_rate_at(-1)
