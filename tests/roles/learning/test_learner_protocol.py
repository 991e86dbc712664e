"""What a learner owes the protocol: a payload of the agreed shape, rounded once, or a refusal that says what to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.contract import LocalUpdate, Payload, TrainingFailed, apply_update, headline

finite = st.floats(-1e6, 1e6, width=32)
vectors = hnp.arrays(np.float32, st.integers(1, 20), elements=finite)


@given(vectors, st.data())
def test_model_payload_replaces_the_model(model: np.ndarray, data: st.DataObject) -> None:
    mean = data.draw(hnp.arrays(np.float64, model.shape, elements=finite))
    assert apply_update(model, mean, "model", 0.1).tobytes() == mean.astype(np.float32).tobytes()


@given(vectors, st.data())
def test_delta_and_gradient_are_one_float64_operation_rounded_once(
    model: np.ndarray, data: st.DataObject
) -> None:
    mean = data.draw(hnp.arrays(np.float64, model.shape, elements=finite))
    wide = model.astype(np.float64)
    assert np.array_equal(apply_update(model, mean, "delta", 9.0), (wide + mean).astype(np.float32))
    assert np.array_equal(apply_update(model, mean, "gradient", 0.5), (wide - 0.5 * mean).astype(np.float32))


def test_apply_update_leaves_its_arguments_alone() -> None:
    model, mean = np.ones(3, np.float32), np.full(3, 2.0)
    payloads: tuple[Payload, ...] = ("model", "delta", "gradient")
    for payload in payloads:
        apply_update(model, mean, payload, 0.1)[:] = 7
    assert (model == 1).all()
    assert (mean == 2).all()


@pytest.mark.parametrize(
    ("model", "mean", "payload", "message"),
    [
        (np.ones(3, np.float32), np.ones(4), "delta", r"shape \(4,\)"),
        (np.ones(3, np.float64), np.ones(3), "delta", "non-empty 1-D float32"),
        (np.ones((3, 1), np.float32), np.ones((3, 1)), "delta", "non-empty 1-D float32"),
        (np.ones(3, np.float32), np.ones(3), "weights", "payload 'weights'"),
        (np.ones(3, np.float32), np.full(3, 1e39), "model", "infinite or NaN"),
        (np.ones(3, np.float32), np.full(3, np.nan), "delta", "infinite or NaN"),
    ],
)
def test_bad_updates_are_refused(model: np.ndarray, mean: np.ndarray, payload: Payload, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        apply_update(model, mean, payload, 0.1)


def test_an_update_without_samples_or_with_a_nan_loss_cannot_be_built() -> None:
    vector = np.ones(2, np.float32)
    with refusal(LocalProtocolError, "update", "sample", 0):
        LocalUpdate(vector, 0, 0.0)
    with refusal(TrainingFailed, "loss", "nan", "rate"):
        LocalUpdate(vector, 1, float("nan"))
    with pytest.raises(LocalProtocolError, match="payload must be"):
        LocalUpdate(np.ones(2, np.float64), 1, 0.0)
    with refusal(LocalProtocolError, "local", "model"):
        LocalUpdate(vector, 1, 0.0, np.ones((2, 2), np.float32))


def test_the_headline_is_the_first_metric() -> None:
    assert headline({"accuracy": 0.5, "loss": 1.0}) == ("accuracy", 0.5)
    assert headline({}) is None


def test_the_learner_protocol_imports_no_torch() -> None:
    code = "import sys, veilsum.roles.learning.contract; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
