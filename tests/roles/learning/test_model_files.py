"""Models as files: the same bytes back, the task's names and shapes, and refusals by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.model_files import layout_of, load_model, save_model
from veilsum.roles.learning.task import TaskOptions

LAYOUT = (("b.weight", (2, 3)), ("a.bias", (3,)), ("c", ()))
MODEL = np.arange(10, dtype=np.float32)


def test_a_saved_model_comes_back_with_and_without_a_layout(tmp_path: Path) -> None:
    """The order is the vector's, not the alphabet's, and is stated in the file itself."""
    path = tmp_path / "model.safetensors"
    save_model(path, MODEL, LAYOUT)
    assert load_model(path).tobytes() == MODEL.tobytes()
    assert load_model(path, LAYOUT).tobytes() == MODEL.tobytes()
    assert load_file(path)["b.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_layout_is_that_of_the_task(tmp_path: Path) -> None:
    digits = load_task("digits", TaskOptions())
    layout = layout_of(digits)
    length = sum(int(np.prod(shape)) for _, shape in layout)
    assert len(layout) > 1
    save_model(tmp_path / "model", np.zeros(length, dtype=np.float32), layout)
    assert layout_of(load_task("vectors:7", TaskOptions())) == (("vector", (7,)),)


def test_a_file_from_elsewhere_needs_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    save_file({"x": np.ones(4, dtype=np.float32), "w": np.zeros((2, 2), dtype=np.float32)}, path)
    assert load_model(path, (("w", (2, 2)), ("x", (4,)))).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    with refusal(LocalProtocolError, "theirs.safetensors", "order", "tensors"):
        load_model(path)


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ({"x": np.ones(4, dtype=np.float64)}, "x is float64"),
        ({"x": np.ones(5, dtype=np.float32)}, r"shape \(5,\)"),
        ({"y": np.ones(4, dtype=np.float32)}, r"tensors .*'x', 'y'"),
        ({"x": np.full(4, np.nan, dtype=np.float32)}, "not finite"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, tensors: dict[str, np.ndarray], text: str
) -> None:
    path = tmp_path / "theirs.safetensors"
    save_file(tensors, path)
    with pytest.raises(LocalProtocolError, match=text):
        load_model(path, (("x", (4,)),))


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="does not exist"):
        load_model(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a model")
    with refusal(LocalProtocolError, tmp_path / "text", "safetensors"):
        load_model(tmp_path / "text")
    with refusal(LocalProtocolError, 10, "values"):
        save_model(tmp_path / "model", MODEL, LAYOUT[:2])
