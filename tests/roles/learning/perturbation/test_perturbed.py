"""A party's work on a perturbed model with torch, the server's part, and models that predict without true weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.perturbation.contract import ExchangeReply, ExchangeRequest
from veilsum.protocol.perturbation.errors import UnsupportedModel
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.model_files import layout_of, save_model
from veilsum.roles.learning.perturbation.client import PerturbedLearner
from veilsum.roles.learning.perturbation.protected import Predictor, protected_model_of_task
from veilsum.roles.learning.perturbation.server import LARGEST_ADAPTED_GAMMA, TaskServerPerturbation
from veilsum.roles.learning.perturbation.traced_task import TracedTask, trace_task
from veilsum.roles.learning.splits import Split
from veilsum.roles.learning.task import TaskOptions
from veilsum.roles.learning.training import loop
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner
from veilsum.roles.process.entropy import SeededEntropy

RANDOM = SeededEntropy(5).for_party("server")
GRADIENT = TrainingOptions(payload="gradient", learning_rate=0.3, device="cpu")


def batchnorm_network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 10),
    )


def digits(network: Callable[[], nn.Module] | None = None, samples: int | None = None) -> SupervisedTask:
    task = load_task("digits", TaskOptions(loss="mse"))
    assert isinstance(task, SupervisedTask)
    if network is not None:
        task = replace(task, network=network)
    if samples is not None:
        task = replace(task, train=task.train.take(np.arange(samples)))
    return task


def traced_for(task: SupervisedTask, **settings: Any) -> TracedTask:
    return trace_task(FederationConfig(scheme="perturbed", **settings), task)


def client(task: SupervisedTask, traced: TracedTask, index: int = 0, parties: int = 1) -> PerturbedLearner:
    return PerturbedLearner(parts(task, index, parties), traced)


def parts(task: SupervisedTask, index: int = 0, parties: int = 1) -> LearnerParts:
    return LearnerParts(task, index, parties, Split("iid"), GRADIENT, 0)


def recovered_mean(task: SupervisedTask, traced: TracedTask, parties: int) -> np.ndarray:
    """One round without messages: the mean payload that the server recovers from all parties."""
    server = TaskServerPerturbation(traced, GRADIENT)
    clients = [client(task, traced, index, parties) for index in range(parties)]
    perturbation = server.perturb(clients[0].initial_model(), 0, RANDOM)
    total, samples = np.zeros(sum(traced.terms.values())), 0
    for one in clients:
        one.require_public(perturbation.public)
        asked, reply = None, None
        if traced.asks:
            asked = one.ask(perturbation.model, perturbation.public, 0, RANDOM)
            perturbation.require_request(asked.request)
            reply = perturbation.answer(asked.request, RANDOM)
        result = one.compute(perturbation.model, perturbation.public, 0, asked, reply)
        total += result.payload.astype(np.float64) * result.samples
        samples += result.samples
    return perturbation.recover(total / samples).mean


def plain_mean(task: SupervisedTask, parties: int) -> np.ndarray:
    learners = [TorchLearner(parts(task, index, parties)) for index in range(parties)]
    updates = [learner.train(learner.initial_model(), 0) for learner in learners]
    samples = sum(update.samples for update in updates)
    return sum(update.payload.astype(np.float64) * update.samples for update in updates) / samples


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("loss", ["mse", "ce"])
@pytest.mark.parametrize("chunk", [1024, 50])
def test_the_server_recovers_the_mean_gradient_also_of_batches_worked_on_in_chunks(
    loss: Any, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHUNK", chunk)
    task = replace(digits(samples=300), objective=loss)
    traced = traced_for(task, groups=3)
    assert relative(recovered_mean(task, traced, 2), plain_mean(task, 2)) < 1e-5


def forgetful() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 10))


@pytest.mark.parametrize(("chunk", "kept"), [(1024, True), (50, False)])
def test_activations_wait_for_the_answer_only_of_one_chunk_and_the_repeated_pass_drops_out_the_same_units(
    chunk: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole data set would not fit in memory; plain training in the same chunks shows that nothing else changes."""
    monkeypatch.setattr(loop, "CHUNK", chunk)
    task = replace(digits(forgetful, samples=120), objective="ce")
    traced = traced_for(task)
    party = client(task, traced)
    perturbation = TaskServerPerturbation(traced, GRADIENT).perturb(party.initial_model(), 0, RANDOM)
    asked = party.ask(perturbation.model, perturbation.public, 0, RANDOM)
    assert all((piece.forward is not None) is kept for piece in asked.kept)
    assert relative(recovered_mean(task, traced, 2), plain_mean(task, 2)) < 1e-5


def test_what_carries_the_offset_is_not_said_to_be_sent_in_clear() -> None:
    """Behind a barrier the last weight has no factor, but it has the offset, unless there is none."""
    task = replace(
        digits(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Sigmoid(), nn.Linear(5, 10))),
        objective="ce",
    )
    last = [
        list(traced_for(task, barrier="unit", noise=kind).warnings())[-1]
        for kind in ("scale+offset", "scale")
    ]
    assert ["3.weight" in text for text in last] == [False, True]


def test_one_output_is_recovered_with_the_squared_error_and_refused_with_cross_entropy() -> None:
    task = load_task("synthetic-regression", TaskOptions())
    assert isinstance(task, SupervisedTask)
    assert relative(recovered_mean(task, traced_for(task), 2), plain_mean(task, 2)) < 1e-5
    binary = digits(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 1)))
    with refusal(ParameterError, "entropy", "two", "outputs", "mse"):
        traced_for(replace(binary, objective="ce"))


def test_running_statistics_come_back_pooled_over_clients_beside_the_exact_gradient() -> None:
    task = digits(batchnorm_network, samples=240)
    traced = traced_for(task)
    found, plain = recovered_mean(task, traced, 2), plain_mean(task, 2)
    size = traced.plan.size
    assert relative(found[:size], plain[:size]) < 1e-4
    means, variances = slice(size, size + 6), slice(size + 6, size + 12)
    assert relative(found[means], plain[means]) < 1e-4
    # (old - new) / rate: pooled variances also count how far the clients' means lie apart.
    assert (found[variances] <= plain[variances] + 1e-4).all()
    assert relative(found[variances], plain[variances]) < 0.1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mode": "scale"}, AbortReason.WRONG_CONFIG),
        ({"loss": "ce"}, AbortReason.WRONG_CONFIG),
        ({"plan_digest": bytes(32)}, AbortReason.WRONG_MODEL),
        ({"partition": np.zeros(10, dtype="<u4")}, AbortReason.WRONG_CONFIG),
        ({"partition": np.zeros(9, dtype="<u4")}, AbortReason.BAD_VECTOR),
        ({"partition": np.zeros(10, dtype="<f8")}, AbortReason.BAD_VECTOR),
        ({"directions": np.full(10, np.nan)}, AbortReason.BAD_VECTOR),
    ],
)
def test_a_client_refuses_a_perturbation_of_another_kind_model_or_shape(
    change: dict[str, Any], reason: AbortReason
) -> None:
    task = digits(samples=30)
    traced = traced_for(task, groups=2)
    public = (
        TaskServerPerturbation(traced, GRADIENT)
        .perturb(client(task, traced).initial_model(), 0, RANDOM)
        .public
    )
    client(task, traced).require_public(public)
    with pytest.raises(Rejection) as caught:
        client(task, traced).require_public(replace(public, **change))
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "malformed",
    [
        ExchangeRequest(bytes(16), np.zeros(0), np.zeros(0)),
        ExchangeRequest(bytes(16), np.zeros(19), np.zeros(2)),
        ExchangeRequest(bytes(16), np.full(20, np.inf), np.zeros(2)),
        ExchangeRequest(bytes(16), np.zeros(20, dtype="<f4"), np.zeros(2)),
    ],
)
def test_the_server_refuses_requests_about_no_samples_or_of_a_wrong_shape(malformed: ExchangeRequest) -> None:
    task = replace(digits(samples=30), objective="ce")
    traced = traced_for(task)
    perturbation = TaskServerPerturbation(traced, GRADIENT).perturb(
        client(task, traced).initial_model(), 0, RANDOM
    )
    with pytest.raises(Rejection) as caught:
        perturbation.require_request(malformed)
    assert caught.value.reason is AbortReason.BAD_VECTOR


def test_a_client_refuses_an_answer_of_another_length() -> None:
    task = replace(digits(samples=30), objective="ce")
    traced = traced_for(task)
    party = client(task, traced)
    perturbation = TaskServerPerturbation(traced, GRADIENT).perturb(party.initial_model(), 0, RANDOM)
    asked = party.ask(perturbation.model, perturbation.public, 0, RANDOM)
    short = ExchangeReply(perturbation.public.key_id, np.zeros(10), np.zeros(10), np.zeros(1))
    with pytest.raises(Rejection) as caught:
        party.compute(perturbation.model, perturbation.public, 0, asked, short)
    assert caught.value.reason is AbortReason.BAD_VECTOR


def test_gamma_follows_the_condition_number_and_stays_below_what_the_words_cover() -> None:
    server = TaskServerPerturbation(traced_for(digits(samples=30)), GRADIENT)
    server.adapt(1e6)
    assert server.settings.gamma == 0.25
    for _ in range(50):
        server.adapt(1.0)
    assert server.settings.gamma == LARGEST_ADAPTED_GAMMA


def test_every_attempt_is_perturbed_anew() -> None:
    task = digits(samples=30)
    traced = traced_for(task)
    server, model = TaskServerPerturbation(traced, GRADIENT), client(task, traced).initial_model()
    perturbs = [server.perturb(model, 0, RANDOM) for _ in range(2)]
    keys = {one.public.key_id for one in perturbs}
    models = {hashlib.sha256(one.model.tobytes()).digest() for one in perturbs}
    assert len(keys) == len(models) == 2


def test_the_leak_and_every_parameter_sent_in_clear_are_named() -> None:
    texts = list(traced_for(digits(batchnorm_network, samples=30)).warnings())
    assert "least squares" in texts[0]
    assert "1.weight" in texts[-1]


def test_tasks_without_a_model_or_a_known_loss_are_refused() -> None:
    config = FederationConfig(scheme="perturbed", task="vectors:5")
    with refusal(TaskError, "perturbed", "vectors:5", "model"):
        trace_task(config, VectorsTask(5))
    with pytest.raises(ParameterError, match="set loss"):
        trace_task(config, replace(digits(samples=30), objective=None))


class Doubled(SupervisedTask):
    """A task whose loss is twice the usual one."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 * super().loss(outputs, targets)


def test_a_task_that_trains_another_loss_than_it_says_is_refused() -> None:
    task = digits(samples=30)
    with refusal(ParameterError, "loss", "mse", "recovered"):
        traced_for(Doubled(task.train, task.test, task.network, task.objective))


@pytest.mark.parametrize("network", [None, batchnorm_network])
def test_a_protected_file_holds_other_weights_and_predicts_the_same_labels_on_the_whole_test_set(
    network: Callable[[], nn.Module] | None, tmp_path: Path
) -> None:
    task = digits(network)
    model = TorchLearner(parts(task)).initial_model()
    protected = protected_model_of_task(task, model, 0, RANDOM)
    path = tmp_path / "protected.safetensors"
    save_model(path, protected, layout_of(task))
    found, true = Predictor.load(path, task).outputs(task.test), Predictor(task, model).outputs(task.test)
    assert (found.argmax(axis=1) == true.argmax(axis=1)).all()
    assert np.abs(found - true).max() < 1e-4
    assert not np.allclose(protected, model, rtol=0.01)


def test_what_cannot_be_perturbed_is_refused_by_name() -> None:
    gelu = digits(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.GELU(), nn.Linear(4, 10)))
    model = TorchLearner(parts(gelu)).initial_model()
    with pytest.raises(UnsupportedModel, match="GELU"):
        protected_model_of_task(gelu, model, 0, RANDOM)
    with refusal(LocalProtocolError, "vectors", "model", "perturb"):
        protected_model_of_task(VectorsTask(5), np.zeros(5, dtype=np.float32), 0, RANDOM)
