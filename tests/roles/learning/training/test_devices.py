"""Devices: the one that is asked for where it is there, and parties that take turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.splits import Split
from veilsum.roles.learning.task import Task
from veilsum.roles.learning.training.devices import available_device, resolve_device
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner


@given(st.integers(1, 8), st.integers(1, 40), st.sampled_from(["auto", "cuda"]))
def test_parties_take_the_gpus_in_turn_so_that_loads_differ_by_at_most_one(
    gpus: int, parties: int, requested: str
) -> None:
    chosen = [resolve_device(requested, party, gpus) for party in range(parties)]
    loads = [chosen.count(f"cuda:{gpu}") for gpu in range(gpus)]
    assert sum(loads) == parties
    assert max(loads) - min(loads) <= 1
    assert chosen[0] == "cuda:0"


@pytest.mark.parametrize(
    ("requested", "party", "gpus", "mps", "expected"),
    [
        ("auto", 3, 0, False, "cpu"),
        ("auto", 3, 0, True, "mps"),
        ("auto", 3, 2, True, "cuda:1"),
        ("cpu", 3, 2, True, "cpu"),
        ("cuda:1", 0, 2, False, "cuda:1"),
        ("cuda:1", 5, 2, False, "cuda:1"),
        ("mps", 0, 0, True, "mps"),
    ],
)
def test_a_device_is_chosen_from_what_is_there(
    requested: str, party: int, gpus: int, mps: bool, expected: str
) -> None:
    assert resolve_device(requested, party, gpus, mps) == expected


@pytest.mark.parametrize(
    ("requested", "gpus", "message"),
    [
        ("cuda", 0, "no CUDA device"),
        ("cuda:2", 2, "2 CUDA devices"),
        ("mps", 1, "device mps"),
        ("tpu", 1, "device 'tpu'"),
        ("cuda:-1", 1, "one of: auto"),
    ],
)
def test_an_absent_or_unknown_device_is_refused(requested: str, gpus: int, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        resolve_device(requested, 0, gpus)


def test_the_cpu_is_always_there() -> None:
    assert available_device("cpu", 0).type == "cpu"


@pytest.mark.cuda
def test_training_on_cuda_repeats_to_the_byte_and_agrees_with_the_cpu(digits: Task) -> None:
    def train(device: str) -> np.ndarray:
        options = TrainingOptions(device=device, local_epochs=1)
        learner = TorchLearner(LearnerParts(digits, 0, 5, Split("iid"), options, seed=7))
        return learner.train(learner.initial_model(), 0).payload

    assert train("cuda").tobytes() == train("cuda").tobytes()
    np.testing.assert_allclose(train("cuda"), train("cpu"), atol=1e-3)


@pytest.mark.cuda
def test_the_initial_model_is_the_same_on_every_device(digits: Task) -> None:
    models = [
        TorchLearner(
            LearnerParts(digits, 0, 5, Split("iid"), TrainingOptions(device=device), seed=7)
        ).initial_model()
        for device in ("cpu", "cuda")
    ]
    assert models[0].tobytes() == models[1].tobytes()
