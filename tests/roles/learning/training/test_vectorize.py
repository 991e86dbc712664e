"""A model as one vector and back, with nothing lost on the way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.training.vectorize import layout, load_vector, to_vector


def normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_a_vector_survives_the_trip_through_a_module(seed: int) -> None:
    module = normed()
    vector = np.random.default_rng(seed).standard_normal(to_vector(module).size).astype(np.float32)
    load_vector(module, vector)
    assert to_vector(module).tobytes() == vector.tobytes()


@pytest.mark.parametrize("name", ["mlp3", "resnet20", "densenet"])
def test_a_module_survives_the_trip_through_a_vector(name: str) -> None:
    source, copy = (build_model(name, (1, 8, 8), 10, seed) for seed in (1, 2))
    load_vector(copy, to_vector(source))
    inputs = torch.rand(3, 1, 8, 8)
    assert torch.equal(source.eval()(inputs), copy.eval()(inputs))


def test_the_layout_is_parameters_then_floating_buffers_without_gaps() -> None:
    entries = layout(normed())
    assert [(entry.name, entry.kind, entry.shape) for entry in entries] == [
        ("0.weight", "parameter", (2, 1, 3, 3)),
        ("0.bias", "parameter", (2,)),
        ("1.weight", "parameter", (2,)),
        ("1.bias", "parameter", (2,)),
        ("3.weight", "parameter", (3, 2)),
        ("3.bias", "parameter", (3,)),
        ("1.running_mean", "buffer", (2,)),
        ("1.running_var", "buffer", (2,)),
    ]
    assert [entry.start for entry in entries] == [0, *(entry.stop for entry in entries[:-1])]
    assert entries[-1].stop == to_vector(normed()).size


def test_integer_buffers_stay_where_they_are() -> None:
    module = normed()
    module(torch.rand(2, 1, 3, 3))
    load_vector(module, np.zeros(to_vector(module).size, dtype=np.float32))
    assert module[1].num_batches_tracked.item() == 1  # type: ignore[index] # a Sequential


def test_a_vector_does_not_share_memory_with_the_module() -> None:
    module = normed()
    to_vector(module)[:] = 9
    vector = np.full(to_vector(module).size, 3, dtype=np.float32)
    load_vector(module, vector)
    vector[:] = 4
    assert (to_vector(module) == 3).all()


def test_a_vector_of_another_length_or_type_changes_nothing() -> None:
    module = normed()
    before = to_vector(module)
    with refusal(LocalProtocolError, 3, before.size):
        load_vector(module, np.zeros(3, dtype=np.float32))
    with pytest.raises(LocalProtocolError, match="1-D float32"):
        load_vector(module, before.astype(np.float64))
    assert to_vector(module).tobytes() == before.tobytes()


def test_a_model_of_other_floats_or_without_parameters_is_refused() -> None:
    with refusal(LocalProtocolError, "weight", "torch.float64", "float32"):
        layout(nn.Linear(2, 2).double())
    with pytest.raises(LocalProtocolError, match="no parameters"):
        layout(nn.ReLU())
