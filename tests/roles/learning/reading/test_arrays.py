"""Samples take arrays and tensors of any numbers: what float32 or int64 hold exactly is converted, all else refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.roles.learning.task import Samples

LABELS = np.array([0, 1, 1])
ROWS = np.arange(6).reshape(3, 2)


@pytest.mark.parametrize(
    "rows",
    [
        *(ROWS.astype(kind) for kind in ("f2", "f4", "f8", "i1", "i4", "i8", "u2", "u8")),
        *(
            torch.from_numpy(ROWS).to(kind)
            for kind in (torch.float32, torch.float64, torch.bfloat16, torch.int32)
        ),
        torch.from_numpy(ROWS).to(torch.float32).requires_grad_(),
        ROWS.tolist(),
    ],
    ids=lambda rows: f"{type(rows).__name__} {getattr(rows, 'dtype', '')}",
)
def test_inputs_of_any_numbers_that_float32_holds_become_float32(rows: object) -> None:
    samples = Samples(rows, LABELS)  # type: ignore[arg-type] # lists are what some users have
    assert samples.inputs.dtype == np.float32
    assert np.array_equal(samples.inputs, ROWS)


def test_pixels_stay_bytes_and_arrays_of_the_right_type_are_not_copied() -> None:
    pixels, targets = np.full((3, 1, 2, 2), 255, np.uint8), np.zeros(3, np.float32)
    samples = Samples(pixels, targets)
    assert samples.inputs is pixels
    assert samples.targets is targets
    assert Samples(torch.from_numpy(pixels), targets).inputs.dtype == np.uint8


@pytest.mark.parametrize("kind", ["bool", "i1", "i4", "u1", "u8"])
def test_whole_targets_become_int64_labels(kind: str) -> None:
    samples = Samples(ROWS, LABELS.astype(kind))
    assert samples.labels is not None
    assert samples.labels.tolist() == LABELS.tolist()
    assert Samples(ROWS, torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)).labels is None


@pytest.mark.parametrize(
    ("inputs", "targets", "says"),
    [
        (np.full((3, 2), 0.1), LABELS, "inputs float64 float32 .astype('float32')"),
        (torch.full((3, 2), 2**24 + 1), LABELS, "inputs int64 16777217 .to(torch.float32)"),
        (ROWS, np.full(3, 0.1), "targets float64 float32"),
        (ROWS, np.full(3, 2**63, np.uint64), "targets uint64 int64"),
        (np.full((3, 2), 1e300), LABELS, "inputs 1e+300"),
        ([["a", "b"]] * 3, LABELS, "inputs numbers"),
        ([[1.0], [1.0, 2.0], [1.0]], LABELS, "inputs array"),
        (ROWS, None, "targets numbers"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_a_conversion_would_change_is_refused_with_the_remedy(
    inputs: object, targets: object, says: str
) -> None:
    with refusal(ParameterError, *says.split()):
        Samples(inputs, targets)  # type: ignore[arg-type] # what is refused


def test_all_that_is_wrong_with_inputs_and_targets_is_said_together() -> None:
    with refusal(ParameterError, "inputs", "targets"):
        Samples(np.full((3, 2), 0.1), np.full(3, 0.1))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
def test_a_conversion_gives_the_same_numbers_or_none(values: list[float]) -> None:
    rows = np.array([values])
    try:
        samples = Samples(rows, [0])
    except ParameterError:
        with np.errstate(over="ignore"):
            assert (rows.astype(np.float32).astype(np.float64) != rows).any()
    else:
        assert np.array_equal(samples.inputs.astype(np.float64), rows)
