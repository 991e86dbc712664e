"""Models as safetensors files: named tensors that every framework reads, and our one vector.

The vector's order is the module's own, which a safetensors file does not keep; so our files repeat it in their
metadata, and can be read back where neither torch nor the task's data are at hand. A file from elsewhere is read by
the names and shapes of the task's model. No file is ever unpickled.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.cli.output_file import write_output
from veilsum.roles.learning.contract import FloatVector, require_float_vector
from veilsum.roles.learning.datasets.vectors import VectorsTask

if TYPE_CHECKING:
    from veilsum.roles.learning.task import Task

Layout: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of a vector's tensors, in the vector's order."""

ORDER = "veilsum_order"


def layout_of(task: Task | VectorsTask) -> Layout:
    """The tensors of a task's model; imports torch unless the task has nothing to learn."""
    if isinstance(task, VectorsTask):
        return (("vector", (task.dimension,)),)
    from veilsum.roles.learning.training.vectorize import layout

    return tuple((entry.name, entry.shape) for entry in layout(task.build_model()))


def save_model(path: Path, model: FloatVector, layout: Layout) -> None:
    """Write the file: whole or not at all, if it is a regular one."""
    require_float_vector(model, "model")
    _require_length(path, len(model), layout)
    tensors: dict[str, FloatVector] = {}
    start = 0
    for name, shape in layout:
        stop = start + math.prod(shape)
        tensors[name] = model[start:stop].reshape(shape).copy()
        start = stop
    order = json.dumps([name for name, _ in layout])
    write_output(path, save(tensors, metadata={ORDER: order}))


def load_model(path: Path, layout: Layout | None = None) -> FloatVector:
    """The vector in a file; without a layout only a file of ours, which states its own order, can be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            order = _order(path, file.metadata() or {}, layout)
            if set(order) != names or len(order) != len(names):
                differing = sorted(names ^ set(order))
                raise ParameterError([f"{path}: its tensors are not those of the model: {differing[:8]}"])
            tensors = [file.get_tensor(name) for name in order]
    except FileNotFoundError:
        raise ParameterError([f"{path} does not exist: correct the path"]) from None
    except (SafetensorError, OSError) as error:
        raise ParameterError([f"{path} is not a safetensors file: {error}"]) from None
    for name, tensor in zip(order, tensors, strict=True):
        wanted = dict(layout)[name] if layout is not None else tensor.shape
        if tensor.dtype != np.float32 or tensor.shape != wanted:
            raise ParameterError(
                [
                    f"{path}: {name} is {tensor.dtype} of shape {tensor.shape}, the model has float32 of {wanted}"
                ]
            )
    vector: FloatVector = np.concatenate([tensor.reshape(-1) for tensor in tensors])
    if not np.isfinite(vector).all():
        raise ParameterError([f"{path}: the model has values that are not finite"])
    return vector


def _order(path: Path, metadata: dict[str, str], layout: Layout | None) -> list[str]:
    if layout is not None:
        return [name for name, _ in layout]
    try:
        order = json.loads(metadata[ORDER])
        if not isinstance(order, list):
            raise ValueError("no list")
    except (KeyError, ValueError, RecursionError):
        raise ParameterError(
            [
                f"{path} does not state the order of its tensors; a process that trains can read it, or veilsum "
                "export can write it anew"
            ]
        ) from None
    return [str(name) for name in order]


def _require_length(path: Path, length: int, layout: Layout) -> None:
    wanted = sum(math.prod(shape) for _, shape in layout)
    if length != wanted:
        raise LocalProtocolError(f"{path}: the model has {length} values, the task's model {wanted}")
