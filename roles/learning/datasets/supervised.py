"""The usual task: a network, cross entropy or squared error, accuracy or explained variance.

Squared error is half the squared distance between outputs and target, averaged over samples; a class label
becomes a one-hot target, or 0 and 1 where the model has a single output. This is the loss the perturbation
schemes expand.

Implements specs/tasks.md, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.config.spelling import named_fields
from veilsum.roles.learning.task import Array, Loss, Samples

_THRESHOLD = 0.5
_MOST_SHOWN = 8


@named_fields
@dataclass(frozen=True)
class SupervisedTask:
    """A task from samples, a function that makes the network, and the name of the loss."""

    train: Samples
    test: Samples
    network: Callable[[], nn.Module] = field(repr=False)
    objective: Loss = "ce"

    def __post_init__(self) -> None:
        if self.objective == "ce" and self.train.labels is None:
            raise LocalProtocolError("loss ce needs class labels; this is a regression task: use loss mse")

    def build_model(self) -> nn.Module:
        """A new network."""
        return self.network()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross entropy or squared error, as a mean over the batch."""
        if self.objective == "ce":
            if outputs.shape[1] < 2:
                raise LocalProtocolError("loss ce needs a model with at least two outputs: use loss mse")
            return functional.cross_entropy(outputs, targets)
        difference = outputs - as_values(targets, outputs)
        return 0.5 * difference.square().sum(dim=1).mean()

    def label_problem(self, outputs: int) -> str:
        """Which labels such a model has no class for, and what to do; another loss may know more of them."""
        if outputs < 2 or type(self).loss is not SupervisedTask.loss:
            return ""
        for what, labels in (("training", self.train.labels), ("test", self.test.labels)):
            if labels is None or 0 <= int(labels.min()) <= int(labels.max()) < outputs:
                continue
            found = [str(label) for label in np.unique(labels)]
            shown = ", ".join([*found[:_MOST_SHOWN], *(["..."] if len(found) > _MOST_SHOWN else [])])
            return (
                f"the {what} samples have the labels {shown}, and a model with {outputs} outputs knows 0 to "
                f"{outputs - 1}: count labels from 0, as Samples.from_csv does with classes=(...), which names them in "
                "order, or give the model an output for each class"
            )
        return ""

    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Accuracy and balanced accuracy for classes; explained variance and squared error for values."""
        if targets.dtype == np.int64:
            return classification_metrics(outputs, targets)
        return regression_metrics(outputs, targets)


def classification_metrics(outputs: Array, targets: Array) -> dict[str, float]:
    """Accuracy, and balanced accuracy: the mean over the classes present of the share found in each."""
    predicted = outputs[:, 0] > _THRESHOLD if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    correct = predicted == targets
    return {"accuracy": float(correct.mean()), "balanced_accuracy": balanced(correct, targets)}


def balanced(correct: Array, targets: Array) -> float:
    """The mean over the classes present of the share that was told right in each."""
    return float(np.mean([correct[targets == label].mean() for label in np.unique(targets)]))


def regression_metrics(outputs: Array, targets: Array) -> dict[str, float]:
    """Explained variance (1 is perfect, 0 is as good as the mean), and the mean squared error."""
    values = targets.reshape(len(targets), -1).astype(np.float64)
    error = float(np.square(outputs - values).mean())
    variance = float(np.square(values - values.mean(axis=0)).mean())
    return {"r2": 1 - error / variance if variance else 0.0, "mse": error}


def as_values(targets: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    if targets.is_floating_point():
        return targets.reshape(len(targets), -1)
    if outputs.shape[1] == 1:
        return targets.reshape(-1, 1).to(outputs.dtype)
    return functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype)
