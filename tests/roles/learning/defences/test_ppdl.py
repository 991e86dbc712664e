"""Selective sharing: the chosen share of entries travels, the rest stays at home."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from tests.support.defended import defended, make_task, undefended
from veilsum.roles.learning.defences.ppdl.guard import largest
from veilsum.roles.learning.training.settings import TrainingOptions

DELTA = TrainingOptions(local_epochs=1, batch_size=8, payload="delta")
GRADIENT = TrainingOptions(payload="gradient")


@given(
    hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-5, 5)),
    st.floats(0, 1, exclude_min=True),
)
def test_the_chosen_entries_are_the_share_with_the_largest_size(change: np.ndarray, share: float) -> None:
    chosen = largest(change, share)
    others = np.setdiff1d(np.arange(change.size), chosen)
    assert abs(chosen.size - max(1.0, share * change.size)) < 1
    assert np.unique(chosen).size == chosen.size
    assert np.abs(change[chosen]).min() >= np.abs(change[others]).max(initial=0)


def test_a_share_that_is_a_whole_number_of_entries_is_that_number() -> None:
    assert largest(np.arange(100.0), 0.07).tolist() == list(range(93, 100))


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("options", [DELTA, GRADIENT])
def test_shared_entries_are_exact_and_all_others_zero(options: TrainingOptions, share: float) -> None:
    model = undefended(options).initial_model()
    clean = undefended(options).train(model, 0).payload
    shared = defended(f"ppdl:share={share}", options).train(model, 0).payload
    at = shared != 0
    assert at.sum() == math.ceil(share * clean.size)
    assert np.array_equal(shared[at], clean[at])


def test_with_whole_models_the_other_entries_stay_as_they_were() -> None:
    options = replace(DELTA, payload="model")
    model = undefended(options).initial_model()
    trained = undefended(options).train(model, 0).payload
    shared = defended("ppdl:share=0.3", options).train(model, 0).payload
    moved = shared != model
    assert np.array_equal(shared[moved], trained[moved])
    assert moved.sum() == math.ceil(0.3 * model.size)


def test_noise_lies_on_shared_entries_alone() -> None:
    model = defended("ppdl:share=0.3", GRADIENT).initial_model()
    exact = defended("ppdl:share=0.3", GRADIENT).train(model, 0).payload
    noisy = defended("ppdl:share=0.3,sigma=0.5", GRADIENT).train(model, 0).payload
    assert np.array_equal(noisy != 0, exact != 0)
    assert (noisy - exact)[exact != 0].std() == pytest.approx(0.5, rel=0.25)


def test_buffers_always_travel() -> None:
    task = make_task(lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3)))
    model = undefended(DELTA, task).initial_model()
    clean = undefended(DELTA, task).train(model, 0).payload
    shared = defended("ppdl:share=0.01", DELTA, task).train(model, 0).payload
    assert np.array_equal(shared[-128:], clean[-128:])
    assert (shared[:-128] != 0).sum() == math.ceil(0.01 * (clean.size - 128))
