"""What is learned: a model, the data, a loss and a metric.

A task is made by a function `(options: TaskOptions) -> Task`, built in or a user's own;
`roles.learning.datasets.registry` finds it by its name.

Data are numpy arrays, so that reading them needs no torch. `train` is the training set that a split divides
among the parties (with the split `own`: the party's own data); `test` is what every party evaluates on.

Implements specs/tasks.md, section 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import ParameterError

if TYPE_CHECKING:
    import torch

Loss: TypeAlias = Literal["ce", "mse"]
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets, one row each.

    Inputs are float32, or uint8 for pixels from 0 to 255, which become float32 from 0 to 1 on their way
    into the model. Targets are int64 class labels or float32 values; which of the two makes a task one of
    classification or of regression.
    """

    inputs: Array
    targets: Array

    def __repr__(self) -> str:
        """What there is of each, and never the data."""
        inputs, targets = self.inputs, self.targets
        return f"Samples(inputs={inputs.dtype} {inputs.shape}, targets={targets.dtype} {targets.shape})"

    @classmethod
    def joined(cls, parts: Iterable[Samples]) -> Samples:
        """All of them, one after the other."""
        held = list(parts)
        return cls(
            np.concatenate([one.inputs for one in held]), np.concatenate([one.targets for one in held])
        )

    def __post_init__(self) -> None:
        problems = []
        if self.inputs.dtype not in (np.float32, np.uint8) or self.inputs.ndim < 2:
            problems.append(_says("inputs", "float32 or uint8, one row per sample", self.inputs))
        if self.targets.dtype not in (np.int64, np.float32) or self.targets.ndim < 1:
            problems.append(_says("targets", "int64 labels or float32 values", self.targets))
        if len(self.inputs) != len(self.targets) or not len(self.inputs):
            problems.append(
                f"{len(self.inputs)} inputs and {len(self.targets)} targets: need as many, at least one"
            )
        if not problems and not (_finite(self.inputs) and _finite(self.targets)):
            problems.append("inputs and targets must be finite")
        if problems:
            raise ParameterError(problems)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def labels(self) -> npt.NDArray[np.int64] | None:
        """The class labels, or None for regression."""
        return self.targets if self.targets.dtype == np.int64 else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.inputs.shape[1:]

    def take(self, positions: npt.NDArray[np.int64]) -> Samples:
        return Samples(self.inputs[positions], self.targets[positions])


@runtime_checkable
class HoldsSamples(Protocol):
    """A learner that trains a model with so many outputs on samples of its party."""

    @property
    def data(self) -> Samples: ...

    @property
    def outputs(self) -> int: ...


@dataclass(frozen=True)
class TaskOptions:
    """What the user says about a task: data folder, seed, and the model and loss if not the task's own.

    `argument` is what follows the colon in a built-in name, as in `bank:with-duration`.
    """

    data: Path | None = None
    seed: int = 0
    model: str | None = None
    loss: Loss | None = None
    argument: str | None = None

    def __post_init__(self) -> None:
        if self.loss is not None and self.loss not in get_args(Loss):
            raise ParameterError([f"loss {self.loss!r} is not one of {', '.join(get_args(Loss))}"])


class Task(Protocol):
    """What a user implements; `SupervisedTask` implements it for the usual cases."""

    @property
    def train(self) -> Samples: ...

    @property
    def test(self) -> Samples: ...

    def build_model(self) -> torch.nn.Module:
        """A new model. It is called with torch's generators seeded, so it need not seed anything."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of a batch as one number: a mean over its samples."""

    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Measures of the whole test set, the headline first. The test loss is added to them."""


def _finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _says(name: str, wanted: str, array: Array) -> str:
    return f"{name} must be {wanted}, not {array.dtype} of shape {array.shape}"
