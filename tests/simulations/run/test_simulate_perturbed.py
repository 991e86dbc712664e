"""Federations on a perturbed model end where plain FedSGD ends, up to rounding, and refuse what cannot be recovered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.perturbation.errors import UnsupportedModel
from veilsum.roles.cli.main import main
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.perturbation.server import TaskServerPerturbation
from veilsum.roles.learning.task import TaskOptions
from veilsum.simulations.run.simulate import SimulationResult, simulate

FLOAT32_ROUNDING = 1e-6


def config(scheme: str, **changes: Any) -> FederationConfig:
    settings: dict[str, Any] = {
        "parties": party_names(3),
        "rounds": 3,
        "learning_rate": 0.3,
        "loss": "mse",
        "device": "cpu",
        **changes,
    }
    return FederationConfig(scheme=scheme, **settings)


def assert_ends_like_plain(result: SimulationResult) -> None:
    figures = result.figures()
    assert not figures["aborted"]
    assert figures["metric"] == pytest.approx(figures["baseline_metric"], abs=0.003)
    assert 0 < figures["baseline_distance"] < FLOAT32_ROUNDING


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": 1},
        {"groups": 2, "alpha": "sum", "gamma": 0.05},
        {"groups": 10},
        {"loss": "ce"},
        {"loss": "ce", "groups": 10},
        {"loss": "ce", "ce_exchange": "printed"},
        {"noise": "scale"},
        {"noise": "scale", "loss": "ce"},
        {"gradient_batch": "mini", "batch_size": 32, "lr_schedule": "step:every=1,factor=0.5"},
    ],
)
def test_perturbed_training_ends_with_the_plain_model_up_to_float32_rounding(changes: dict[str, Any]) -> None:
    assert_ends_like_plain(simulate(config("perturbed", **changes), compare="plain"))


@pytest.mark.parametrize("changes", [{"groups": 2}, {"loss": "ce"}, {"noise": "scale"}])
def test_bilateral_training_does_so_under_masks_with_sums_that_are_exact(changes: dict[str, Any]) -> None:
    result = simulate(config("bilateral", **changes), compare="plain")
    assert_ends_like_plain(result)
    assert result.exact


@pytest.mark.parametrize("phase", ["keys", "question", "shares", "upload", "survivors", "release"])
def test_bilateral_rounds_survive_a_client_lost_in_any_phase(phase: str) -> None:
    lossy = config("bilateral", parties=party_names(5), loss="ce", rounds=2)
    result = simulate(lossy, drop=f"1@{phase}")
    assert result.failed is None
    assert len(result.rounds) == 2
    assert len(result.rounds[-1].members) == 4
    assert result.exact


def test_the_loss_that_is_reported_is_the_true_one_of_the_round() -> None:
    shown = [one.loss for one in simulate(config("perturbed", loss="ce")).rounds]
    plain = [one.loss for one in simulate(config("plain", loss="ce", payload="gradient")).rounds]
    assert shown == pytest.approx(plain, rel=1e-4)


def test_one_client_may_train_alone_and_is_warned() -> None:
    result = simulate(config("perturbed", parties=party_names(1)), compare="plain")
    assert_ends_like_plain(result)
    warnings = list(result.federation.scheme.warnings(result.federation.parameters))
    assert any("one client" in text for text in warnings)


@pytest.mark.parametrize(("loss", "words"), [("mse", "least squares"), ("ce", "softmax")])
def test_the_leak_of_the_chosen_perturbation_is_said_before_the_run(loss: str, words: str) -> None:
    result = simulate(config("perturbed", loss=loss, rounds=1))
    assert words in next(result.federation.equipment_notes())


def test_clients_end_with_other_weights_and_the_true_predictions() -> None:
    result = simulate(config("perturbed"))
    learner = next(iter(result.federation.learners.values()))
    for node in result.simulation.participants:
        kept = node.disk.model
        assert kept is not None
        assert not np.allclose(kept, result.model, rtol=0.01)
        assert learner.evaluate(kept)["accuracy"] == result.metrics["accuracy"]


def test_an_offset_too_large_for_the_network_is_lowered_and_the_round_repeated() -> None:
    """With the published alpha, gamma 20 leaves no digit on this network; the model waits until some are left."""
    result = simulate(config("perturbed", alpha="sum", gamma=20.0, rounds=2, max_attempts=8))
    assert result.failed is None
    reasons = {failure.reason for name, failure in result.recorder.failures if name == SERVER}
    assert reasons == {AbortReason.PRECISION_LOST}
    equipment = result.federation.equipment[SERVER]
    assert isinstance(equipment, TaskServerPerturbation)
    assert equipment.settings.gamma < 20.0


def test_the_published_exchange_overflows_by_name_and_the_model_stays_as_it_was() -> None:
    result = simulate(config("perturbed", loss="ce", ce_exchange="printed", gamma=1000.0, rounds=1))
    assert result.failed is not None
    assert not result.rounds
    told = [failure.detail for name, failure in result.recorder.failures if name != SERVER]
    assert told and all("use the log exchange or a smaller gamma" in text for text in told)
    warned = result.recorder.warnings
    assert sum("use the log exchange or a smaller gamma" in text for text in warned) == 1
    assert any("withdrew: the printed exchange overflows" in text for text in warned)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "ce", "ce_exchange": "printed", "alpha": "sum", "gamma": 0.5},
        {"loss": "mse", "gamma": 1290.0, "seed": 12},
    ],
)
def test_clients_that_withdraw_because_of_the_perturbation_get_less_of_it_in_the_next_attempt(
    changes: dict[str, Any],
) -> None:
    """An exchange that overflows at the clients, and terms that do not fit their words for the draws of this seed."""
    result = simulate(config("bilateral", rounds=2, parties=party_names(5), **changes))
    assert result.failed is None
    assert result.rounds[0].attempt >= 1
    equipment = result.federation.equipment[SERVER]
    assert isinstance(equipment, TaskServerPerturbation)
    assert equipment.settings.gamma < changes["gamma"]


def sigmoid_task(options: TaskOptions) -> object:
    """Digits with a network that no factor can pass."""
    import dataclasses

    from torch import nn

    digits = load_task("digits", options)
    layers = (lambda: nn.Linear(64, 8), nn.Sigmoid, lambda: nn.Linear(8, 10))
    return dataclasses.replace(
        digits, network=lambda: nn.Sequential(nn.Flatten(), *(make() for make in layers))
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"groups": 11}, "11 groups"),
        ({"gamma": 1e6}, "lose all precision"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused_before_the_first_message(
    changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ParameterError, match=says):
        simulate(config("perturbed", **changes))


def test_a_model_that_cannot_be_perturbed_is_refused_by_the_name_of_its_node() -> None:
    task = "tests.simulations.run.test_simulate_perturbed:sigmoid_task"
    with pytest.raises(UnsupportedModel) as caught:
        simulate(config("perturbed", task=task))
    assert caught.value.node == "2"
    assert "Sigmoid" in caught.value.reason


def test_with_a_unit_barrier_it_is_trained_exactly_and_named_as_unperturbed() -> None:
    task = "tests.simulations.run.test_simulate_perturbed:sigmoid_task"
    result = simulate(config("perturbed", task=task, barrier="unit"), compare="plain")
    assert_ends_like_plain(result)
    notes = list(result.federation.equipment_notes())
    assert any("2" in note and "unperturbed" in note for note in notes), notes


def test_the_command_prints_the_distance_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    words = (
        "--scheme perturbed --task digits --loss mse --noise scale+offset --groups 2 --parties 3 --rounds 2"
    )
    assert main(["simulate", *words.split(), "--compare", "plain", "--json", str(target)]) == 0
    printed = capsys.readouterr()
    assert "apart" in printed.out
    assert "least squares" in printed.err
    assert json.loads(target.read_text())["baseline_distance"] < FLOAT32_ROUNDING
