"""What is learned: a model, the data, a loss and a metric.

A task is made by a function `(options: TaskOptions) -> Task`, built in or a user's own;
`roles.learning.datasets.registry` finds it by its name.

Data are numpy arrays, so that reading them needs no torch. `train` is the training set that a split divides
among the parties (with the split `own`: the party's own data); `test` is what every party evaluates on.

Implements specs/tasks.md, section 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.spelling import named_fields
from veilsum.roles.learning.reading.arrays import NotConvertible, as_inputs, as_targets
from veilsum.roles.learning.reading.csv_file import Columns, read_csv
from veilsum.roles.learning.reading.torch_dataset import MapDataset, read_dataset

if TYPE_CHECKING:
    import torch

    ArrayLike: TypeAlias = npt.ArrayLike | torch.Tensor

Loss: TypeAlias = Literal["ce", "mse"]
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, init=False)
class Samples:
    """Inputs and targets, one row each, from arrays or tensors; `from_csv` and `from_dataset` read them.

    Inputs are float32, or uint8 for pixels from 0 to 255, which become float32 from 0 to 1 on their way
    into the model. Targets are int64 class labels or float32 values; which of the two makes a task one of
    classification or of regression. Other numbers are converted where that is exact, and refused where it is not.
    """

    inputs: Array
    targets: Array

    def __init__(self, inputs: ArrayLike, targets: ArrayLike) -> None:
        problems = []
        for name, given, convert in (("inputs", inputs, as_inputs), ("targets", targets, as_targets)):
            try:
                object.__setattr__(self, name, convert(given))
            except NotConvertible as problem:
                problems.append(f"{name} {problem}")
        problems = problems or list(self._problems())
        if problems:
            raise ParameterError(problems)

    @classmethod
    def from_csv(
        cls,
        path: Path | str,
        *,
        target: str,
        columns: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        classes: Sequence[str] | None = None,
        scale: Mapping[str, tuple[float, float]] | None = None,
        missing: Mapping[str, float | str] | None = None,
        delimiter: str = ",",
    ) -> Samples:
        """The rows of a CSV file with a header, in UTF-8; packed if its name ends in .gz.

        `columns` are the inputs in their order (all but the target, if not given), `categories` the words of a column
        that becomes one-hot, `classes` the words of the target that become labels 0, 1, ... (values, if not given),
        `scale` a (mean, deviation) by which a column is standardised, `missing` what stands for a value that is not
        there. Name them all: parties with other rows must make the same columns. What is not covered is refused with
        its line and column.
        """
        chosen = Columns(target, columns, categories or {}, classes, scale or {}, missing or {})
        return cls(*read_csv(Path(path), chosen, delimiter))

    @classmethod
    def from_dataset(cls, dataset: MapDataset) -> Samples:
        """The items of a map-style data set, such as a torch Dataset: (input, target) each, asked for once, in order.

        Inputs are tensors, arrays, numbers or images of PIL (which become pixels, channels first), all of one shape.
        """
        return cls(*read_dataset(dataset))

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

    def _problems(self) -> Iterator[str]:
        inputs, targets = self.inputs, self.targets
        if inputs.ndim < 2:
            yield f"inputs must have one row per sample, not {inputs.dtype} of shape {inputs.shape}"
        if targets.ndim < 1:
            yield f"targets must have one row per sample, not {targets.dtype} of shape {targets.shape}"
        elif inputs.ndim and (len(inputs) != len(targets) or not len(inputs)):
            yield f"{len(inputs)} inputs and {len(targets)} targets: need as many, at least one"
        if not (_finite(inputs) and _finite(targets)):
            yield "inputs and targets must be finite"

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def labels(self) -> npt.NDArray[np.int64] | None:
        """The class labels, or None for regression."""
        return self.targets if self.targets.dtype == np.int64 else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.inputs.shape[1:]

    def take(self, positions: npt.NDArray[np.int64]) -> Samples:
        """The samples at these positions."""
        return Samples(self.inputs[positions], self.targets[positions])


@runtime_checkable
class HoldsSamples(Protocol):
    """A learner that trains a model with so many outputs on samples of its party."""

    @property
    def data(self) -> Samples: ...

    @property
    def outputs(self) -> int: ...


@named_fields
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
    def train(self) -> Samples:
        """The training set, which a split divides; with the split `own` the party's own."""

    @property
    def test(self) -> Samples:
        """What every party measures a model on."""

    def build_model(self) -> torch.nn.Module:
        """A new model. It is called with torch's generators seeded, so it need not seed anything."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of a batch as one number: a mean over its samples."""

    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Measures of the whole test set, the headline first. The test loss is added to them."""


@runtime_checkable
class ChecksLabels(Protocol):
    """A task that knows which labels its loss understands."""

    def label_problem(self, outputs: int) -> str:
        """What is wrong with its labels for a model with so many outputs, and the remedy; empty if nothing is."""


def _finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
