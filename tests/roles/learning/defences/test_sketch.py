"""Sketching: even buckets, and a projected layer that computes with sketched inputs and weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.support.defended import defended, make_task, undefended
from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.defences.sketch.guard import CountSketch, sketched_layers
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import layout

GRADIENT = TrainingOptions(payload="gradient")
sketches = st.builds(
    CountSketch.draw,
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(sketches)
def test_buckets_are_as_even_as_can_be_and_every_input_has_one(sketch: CountSketch) -> None:
    sizes = np.bincount(sketch.bucket, minlength=sketch.buckets)
    assert sizes.sum() == sketch.bucket.size
    assert sizes.max() - sizes.min() <= 1
    assert set(np.unique(sketch.sign)) <= {-1.0, 1.0}


@given(sketches, st.integers(0, 99))
def test_a_layer_with_projected_weights_computes_with_sketched_inputs_and_weights(
    sketch: CountSketch, seed: int
) -> None:
    """x (W S S^T)^T = (x S)(W S)^T, and the gradient is that of the sketched weights, mapped back by S^T."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(3, sketch.bucket.size, generator=random)
    weight = torch.randn(2, sketch.bucket.size, generator=random, requires_grad=True)
    matrix = torch.from_numpy(sketch.matrix())
    small = (weight.detach() @ matrix).requires_grad_()
    literal = (inputs @ matrix) @ small.T
    projected = functional.linear(inputs, sketch.project(weight))
    assert torch.allclose(projected, literal, atol=1e-4)
    (whole,) = torch.autograd.grad(projected.square().sum(), weight)
    (of_small,) = torch.autograd.grad(literal.square().sum(), small)
    assert torch.allclose(whole, of_small @ matrix.T, rtol=1e-3, atol=1e-3)


def test_sketches_are_unbiased() -> None:
    """The mean of S S^T over rounds is the identity."""
    total = np.zeros((6, 6))
    for round_ in range(1500):
        matrix = CountSketch.draw(6, 2, 7, round_, 0).matrix()
        total += matrix @ matrix.T
    assert np.allclose(total / 1500, np.eye(6), atol=0.1)


def test_a_sketch_is_fresh_in_every_round_and_layer_and_the_same_for_all_parties() -> None:
    drawn = CountSketch.draw(64, 2, 7, 0, 0)
    again = CountSketch.draw(64, 2, 7, 0, 0)
    assert np.array_equal(drawn.matrix(), again.matrix())
    for other in (CountSketch.draw(64, 2, 7, 1, 0), CountSketch.draw(64, 2, 7, 0, 1)):
        assert not np.array_equal(drawn.matrix(), other.matrix())


@pytest.mark.parametrize("model", ["mlp3:8", "dlnet"])
def test_an_upload_shows_layer_inputs_through_the_sketch_alone(model: str) -> None:
    """Every weight gradient equals its own projection divided by the bucket sizes: S^T S is diagonal."""
    task = make_task(lambda: build_model(model, (1, 8, 8), 3))
    party = defended("sketch:ratio=2", GRADIENT, task)
    payload = torch.from_numpy(party.train(party.initial_model(), 4).payload)
    network = task.build_model()
    entries = [one for one in layout(network) if one.name.endswith("weight")]
    for place, (entry, layer) in enumerate(zip(entries, sketched_layers(network), strict=True)):
        gradient = payload[entry.start : entry.stop].reshape(entry.shape)
        sketch = CountSketch.draw(layer.weight[0].numel(), 2, 7, 4, place)
        sizes = torch.from_numpy(np.bincount(sketch.bucket)[sketch.bucket].astype(np.float32))
        shown = sketch.project(gradient).flatten(1) / sizes
        assert torch.allclose(shown, gradient.flatten(1), rtol=1e-4, atol=1e-6)
        assert gradient.abs().max() > 0


def test_parties_with_different_secrets_use_one_sketch() -> None:
    one, other = (defended("sketch", GRADIENT, secret=secret) for secret in (1, 2))
    model = one.initial_model()
    assert one.train(model, 0).payload.tobytes() == other.train(model, 0).payload.tobytes()


def test_evaluation_uses_plain_weights() -> None:
    party = defended("sketch:ratio=4")
    model = party.initial_model()
    party.train(model, 0)
    assert party.evaluate(model) == undefended().evaluate(model)


def test_a_model_with_nothing_to_sketch_is_refused() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)[:, :3] * self.scale

    with refusal(LocalProtocolError, "linear", "convolutional"):
        defended("sketch", task=make_task(Scaled))
