"""What a role needs from local training, without torch.

A role hands over the round's model as one flat vector and gets one flat vector back. How it was made (torch,
numpy, a table of random numbers) is the learner's own business, so that a role which does no training
imports no torch, and a test can put four lines in the place of a network.

The vector lists all parameters, then all floating buffers, in an order fixed by the model. Three payloads:

* `model`: the locally trained model; the mean replaces the global model.
* `delta`: trained model minus the round's model; the mean is added.
* `gradient`: one average gradient at the round's model; the mean is one SGD step. Buffers have no gradient:
  their part carries (old - new) / learning rate, so that the step moves them to the mean of the new ones.

`apply_update` is the step without a kind of protocol/numbers/steps.py: every party that applies the same mean to the
same model holds the same bytes.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.machines.events import TrainingRequested
from veilsum.protocol.numbers.rates import RateSchedule
from veilsum.protocol.numbers.step_memory import StepMemory
from veilsum.protocol.numbers.steps import ModelStep

FloatVector: TypeAlias = npt.NDArray[np.float32]
Payload: TypeAlias = Literal["model", "delta", "gradient"]
PAYLOADS: tuple[Payload, ...] = get_args(Payload)


class TrainingFailed(LocalProtocolError):
    """Local training gave no usable update: the loss, a parameter or a gradient is not finite."""

    told = "its training diverged; lower the learning rate, or let it check its data"


@dataclass(frozen=True)
class LocalUpdate:
    """The result of one party's local work in one round; `model` is its local model, where there is one."""

    payload: FloatVector
    samples: int
    loss: float
    model: FloatVector | None = None

    def __post_init__(self) -> None:
        require_float_vector(self.payload, "payload")
        if self.model is not None:
            require_float_vector(self.model, "local model")
        if self.samples < 1:
            raise LocalProtocolError(f"an update needs at least one sample behind it, not {self.samples}")
        if not math.isfinite(self.loss):
            raise TrainingFailed(
                f"the training loss is {self.loss}; lower the learning rate or check the data"
            )


class Learner(Protocol):
    """One party's local work; every method is a pure function of its arguments and of the constructor's."""

    def initial_model(self) -> FloatVector:
        """The first model: the same bytes at every party built from the same seed."""

    def train(self, model: FloatVector, round: int) -> LocalUpdate:
        """Work on the party's data, starting from `model`; the same arguments give the same bytes."""

    def evaluate(self, model: FloatVector) -> dict[str, float]:
        """Metrics of `model` on the task's test set, the headline metric first."""


def train_as_asked(learner: Learner, request: TrainingRequested) -> LocalUpdate:
    """The local work of a round: the learner's own training, or what the scheme asks for in its place."""
    if request.work is None:
        return learner.train(request.model, request.round)
    result = request.work()
    return LocalUpdate(result.payload, result.samples, result.loss)


def headline(metrics: Mapping[str, float]) -> tuple[str, float] | None:
    """The metric to show where there is room for one: the first, or none where nothing is measured."""
    return next(iter(metrics.items()), None)


def against_chance(metrics: Mapping[str, float]) -> tuple[str, float] | None:
    """The metric that tells knowledge from none: where one class is frequent, guessing it always is accurate, too."""
    balanced = metrics.get("balanced_accuracy")
    return ("balanced accuracy", balanced) if balanced is not None else headline(metrics)


def sha256_of(model: FloatVector) -> str:
    """SHA-256 over the model's float32 numbers, little-endian, in the order of the vector."""
    return hashlib.sha256(np.ascontiguousarray(model, dtype="<f4").tobytes()).hexdigest()


def apply_update(
    model: FloatVector, mean: npt.NDArray[np.floating], payload: Payload, learning_rate: float
) -> FloatVector:
    """The next global model from the mean of the payloads; `learning_rate` is that of the round.

    Only `gradient` uses the learning rate.
    """
    require_float_vector(model, "model")
    step = ModelStep(payload, RateSchedule(learning_rate))
    return step.apply(model, StepMemory(), mean.astype(np.float64, copy=False), 0)[0]


def require_float_vector(vector: npt.NDArray[np.floating], name: str) -> None:
    """Refuse anything but a one-dimensional, non-empty float32 array."""
    if vector.dtype != np.float32 or vector.ndim != 1 or vector.size == 0:
        raise LocalProtocolError(
            f"{name} must be a non-empty 1-D float32 array, not {vector.dtype} of shape {vector.shape}"
        )
