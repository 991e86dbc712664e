"""A guard of a user's own that raises or gives no update is blamed by the name of its defence, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.examples.own_defence import ClippedSigns, ClippedSignsGuard
from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.defences.guard import DefenceFailed
from veilsum.roles.learning.factory import make_learner
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.run.simulate import simulate

NAME = ClippedSigns.name
DEFENDED = FederationConfig(
    scheme="masked", task="digits", rounds=1, defence="tests.examples.own_defence:ClippedSigns"
)
RELEASES: dict[str, Callable[[np.ndarray], Any]] = {
    "NoneType": lambda payload: None,
    "(3,)": lambda payload: payload[:3],
    "float64": lambda payload: payload.astype(np.float64),
    "broadcast": lambda payload: payload + np.ones(7, np.float32),
    "KeyError": lambda payload: {}["x"],
}


@pytest.mark.parametrize("told", RELEASES)
def test_a_release_that_raises_or_gives_no_update_names_the_defence(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClippedSignsGuard, "release", lambda self, payload, *_: RELEASES[told](payload))
    task = load_task(DEFENDED.task, DEFENDED.task_options())
    learner = make_learner(DEFENDED, task, DEFENDED.parties[0], entropy=SeededEntropy(1))
    with refusal(DefenceFailed, NAME, told):
        learner.train(learner.initial_model(), 0)


def test_a_release_that_is_refused_shows_no_value_of_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClippedSignsGuard, "release", lambda self, payload, *_: [0.123456789] * len(payload))
    task = load_task(DEFENDED.task, DEFENDED.task_options())
    learner = make_learner(DEFENDED, task, DEFENDED.parties[0], entropy=SeededEntropy(1))
    with pytest.raises(DefenceFailed) as caught:
        learner.train(learner.initial_model(), 0)
    assert "0.123" not in str(caught.value)


def test_a_party_whose_defence_fails_withdraws_and_the_others_are_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClippedSignsGuard, "release", lambda *_: None)
    result = simulate(DEFENDED)
    assert not result.figures()["rounds"]
    assert any("defence failed" in note for note in result.figures()["warnings"])


@pytest.mark.parametrize("guard", [lambda *_: None, lambda *_: {}["x"]])
def test_a_defence_that_makes_no_guard_is_refused_by_name(
    guard: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClippedSigns, "guard", guard)
    with refusal(ParameterError, NAME, "guard(key)"):
        simulate(DEFENDED)
