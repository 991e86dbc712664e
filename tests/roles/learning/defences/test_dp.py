"""Differential privacy of an update: where the noise lies, how much of it there is, and when it is fresh."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.defended import defended, make_task, undefended
from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.defences.dp.accountant import gaussian_loss
from veilsum.roles.learning.defences.dp.guard import PrivateStepsGuard
from veilsum.roles.learning.defences.dp.private_sgd import Clipping, Plan
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.loop import Feed
from veilsum.roles.learning.training.settings import TrainingOptions

DELTA = TrainingOptions(local_epochs=1, batch_size=8, payload="delta")
GRADIENT = TrainingOptions(payload="gradient")


def batch_normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def cross_entropy(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(module(inputs), targets)


@pytest.mark.parametrize(("mechanism", "deviation"), [("gaussian", 1.0), ("laplace", math.sqrt(2))])
@pytest.mark.parametrize("options", [DELTA, replace(DELTA, payload="model"), GRADIENT])
def test_noise_of_the_given_scale_lies_on_every_entry_of_the_change(
    options: TrainingOptions, mechanism: str, deviation: float
) -> None:
    party, plain = defended(f"dp:sigma=0.5,mechanism={mechanism}", options), undefended(options)
    model = plain.initial_model()
    noise = party.train(model, 0).payload - plain.train(model, 0).payload
    assert (noise != 0).all()
    assert noise.std() == pytest.approx(0.5 * deviation, rel=0.15)


def test_the_same_work_meets_the_same_noise_and_other_work_meets_fresh_noise() -> None:
    """Asking again shows nothing new, and no two uploads can be subtracted to get rid of the noise."""
    party, plain = defended("dp:sigma=0.1", GRADIENT), undefended(GRADIENT)
    model = plain.initial_model()
    moved = (model + np.float32(0.01)).astype(np.float32)

    def noise(start: np.ndarray, round_: int) -> np.ndarray:
        return party.train(start, round_).payload - plain.train(start, round_).payload

    assert np.array_equal(noise(model, 0), noise(model, 0))
    for other in (
        noise(moved, 0),
        noise(model, 1),
        defended("dp:sigma=0.1", GRADIENT, secret=2).train(model, 0).payload,
    ):
        assert abs(np.corrcoef(noise(model, 0), other)[0, 1]) < 0.2


def test_buffers_travel_without_noise() -> None:
    """Noise on a running variance could make it negative."""
    task = make_task(batch_normed)
    model = undefended(DELTA, task).initial_model()
    noise = (
        defended("dp:sigma=0.5", DELTA, task).train(model, 0).payload
        - undefended(DELTA, task).train(model, 0).payload
    )
    assert (noise[:-16] != 0).all()
    assert (noise[-16:] == 0).all()


@pytest.mark.parametrize(("mechanism", "order"), [("gaussian", 2), ("laplace", 1)])
@pytest.mark.parametrize("bound", [0.05, 1.0, 1e6])
def test_a_sum_of_clipped_gradients_is_the_sum_over_samples_one_by_one(
    mechanism: str, order: int, bound: float
) -> None:
    network = build_model("dlnet", (1, 8, 8), 3, seed=2)
    rng = np.random.default_rng(3)
    samples = Samples(rng.random((5, 1, 8, 8), dtype=np.float32), np.arange(5) % 3)
    feed = Feed(samples, torch.device("cpu"))
    found, losses = Clipping(bound, mechanism).total(network, cross_entropy, feed, np.arange(5))  # type: ignore[arg-type]  # a word from the parameters above
    parameters = list(network.parameters())
    expected = [torch.zeros_like(one) for one in parameters]
    total = 0.0
    for position in range(5):
        loss = cross_entropy(network, *feed.batch(np.array([position])))
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.linalg.vector_norm(torch.cat([one.flatten() for one in gradients]), order)
        total += loss.item()
        for sum_, gradient in zip(expected, gradients, strict=True):
            sum_ += gradient * min(1.0, bound / float(norm))
    assert losses == pytest.approx(total, rel=1e-5)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def test_without_noise_and_with_a_wide_clip_a_private_gradient_is_the_gradient() -> None:
    model = undefended(GRADIENT).initial_model()
    private = defended("dp:sigma=0,clip=1e6", GRADIENT).train(model, 0)
    plain = undefended(GRADIENT).train(model, 0)
    assert np.allclose(private.payload, plain.payload, rtol=1e-4, atol=1e-6)
    assert private.loss == pytest.approx(plain.loss, rel=1e-5)


def test_one_sample_moves_a_private_gradient_by_at_most_the_clip() -> None:
    """The sensitivity that the noise is made for, divided by the batch that the sum is divided by."""
    task = make_task(count=24)
    louder = task.train.inputs.copy()
    party = defended("dp:sigma=0,clip=0.1", GRADIENT, task)
    held = party._feed.samples.inputs[0]
    at = int(np.flatnonzero((louder == held).all(axis=(1, 2, 3)))[0])
    louder[at] = 100 * louder[at]
    changed = replace(task, train=Samples(louder, task.train.targets))
    other = defended("dp:sigma=0,clip=0.1", GRADIENT, changed)
    model = party.initial_model()
    difference = other.train(model, 0).payload - party.train(model, 0).payload
    assert 0 < np.linalg.norm(difference) <= 2 * 0.1 / party.samples * (1 + 1e-4)


def test_batches_are_drawn_by_secret_coins() -> None:
    """With no noise at all two parties that differ in their secret alone use different batches."""
    options = replace(DELTA, local_epochs=1)
    model = defended("dp:sigma=0,clip=1", options).initial_model()
    one, other = (defended("dp:sigma=0,clip=1", options, secret=secret).train(model, 0) for secret in (1, 2))
    assert not np.array_equal(one.payload, other.payload)


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        (TrainingOptions(local_epochs=3, batch_size=5), Plan(0.5, 6, 5)),
        (TrainingOptions(local_epochs=3, batch_size=4), Plan(0.4, 9, 4)),
        (TrainingOptions(local_epochs=3, batch_size=None), Plan(1.0, 3, 10)),
        (TrainingOptions(local_epochs=1, batch_size=99), Plan(1.0, 1, 10)),
        (GRADIENT, Plan(1.0, 1, 10)),
        (replace(GRADIENT, gradient_batch="mini", batch_size=2), Plan(0.2, 1, 2)),
    ],
)
def test_the_plan_counts_every_step_of_a_round(options: TrainingOptions, plan: Plan) -> None:
    assert Plan.of(options, 10) == plan


def test_the_account_counts_uploads_once_each_and_survives_a_restart() -> None:
    party = defended("dp:sigma=2,clip=1,delta=1e-6", GRADIENT)
    guard = party.guards["dp"]
    assert isinstance(guard, PrivateStepsGuard)
    model = party.initial_model()
    assert guard.spent.epsilon == 0
    party.train(model, 0)
    party.train(model, 0)
    assert guard.spent == gaussian_loss(1.0, 2.0, 1, 1e-6)
    party.train(model, 1)
    party.train((model + np.float32(0.5)).astype(np.float32), 1)
    assert guard.spent == gaussian_loss(1.0, 2.0, 3, 1e-6)
    again = defended("dp:sigma=2,clip=1,delta=1e-6", GRADIENT, secret=9)
    again.restore(party.state())
    restored = again.guards["dp"]
    assert isinstance(restored, PrivateStepsGuard)
    assert restored.spent == guard.spent


def test_the_note_states_epsilon_and_delta_for_all_rounds() -> None:
    (note,) = defended("dp:sigma=1,clip=1", DELTA).notes(3)
    expected = gaussian_loss(8 / 12, 1.0, 6, 1e-5)
    assert f"epsilon {expected.epsilon:.3g}, delta 1e-05" in note
    assert "3 rounds of 2 steps" in note
    assert "delta 0" in defended("dp:sigma=1,clip=1,mechanism=laplace", DELTA).notes(1)[0]
    assert defended("dp:sigma=1", DELTA).notes(3) == []


def test_a_model_that_mixes_samples_is_refused_with_clip() -> None:
    with refusal(LocalProtocolError, 2, "mixes", "norm"):
        defended("dp:sigma=1,clip=1", DELTA, make_task(batch_normed))
