"""The inner loop: epochs over shuffled batches, or one average gradient.

An objective maps (module, inputs, targets) to the loss of a batch. Plain training uses the task's loss of the
module's outputs; a defence that changes what is optimised passes another objective and leaves the loop alone.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from veilsum.roles.learning.contract import TrainingFailed
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.optimizers import make_optimizer
from veilsum.roles.learning.training.settings import TrainingOptions

Objective: TypeAlias = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]

CHUNK = 1024
_PIXEL_MAX = 255


@dataclass(frozen=True)
class Feed:
    """A party's samples as torch batches on its device."""

    samples: Samples
    device: torch.device

    def batch(self, positions: npt.NDArray[np.int64]) -> Batch:
        inputs = torch.from_numpy(self.samples.inputs[positions]).to(self.device, copy=True)
        targets = torch.from_numpy(self.samples.targets[positions]).to(self.device, copy=True)
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(torch.float32).div_(_PIXEL_MAX)
        return inputs, targets

    def fits_one_chunk(self, positions: npt.NDArray[np.int64]) -> bool:
        return positions.size <= CHUNK

    def chunks(self, positions: npt.NDArray[np.int64]) -> Iterator[Batch]:
        """All positions in order, in pieces that fit the memory of a forward pass.

        Pieces are of about equal size: a rest of one sample could not be normalised over the batch.
        """
        for piece in np.array_split(positions, math.ceil(positions.size / CHUNK)):
            yield self.batch(piece)


def train_epochs(
    module: nn.Module,
    objective: Objective,
    feed: Feed,
    options: TrainingOptions,
    learning_rate: float,
    order: np.random.Generator,
) -> float:
    """Train in place; returns the mean loss over all batches, weighted by their size."""
    parameters = trainable(module)
    step = make_optimizer(parameters, options, learning_rate)
    module.train()
    size = options.batch_size or len(feed.samples)
    total = 0.0
    for _ in range(options.epochs):
        shuffled = order.permutation(len(feed.samples))
        for start in range(0, shuffled.size, size):
            inputs, targets = feed.batch(shuffled[start : start + size])
            loss = objective(module, inputs, targets)
            total += require_finite(loss.item()) * len(inputs)
            step(_gradients(loss, parameters))
    return total / (options.epochs * len(feed.samples))


def average_gradient(
    module: nn.Module, objective: Objective, feed: Feed, positions: npt.NDArray[np.int64]
) -> tuple[list[torch.Tensor], float]:
    """The gradient of the mean loss over the positions, by trainable parameter, and that loss.

    More than `CHUNK` samples are added up in chunks: exact for networks that treat samples one by one; a
    batch norm sees the statistics of a chunk.
    """
    parameters = trainable(module)
    module.train()
    total = [torch.zeros_like(parameter) for parameter in parameters]
    mean_loss = 0.0
    for inputs, targets in feed.chunks(positions):
        share = len(inputs) / positions.size
        loss = objective(module, inputs, targets)
        mean_loss += share * require_finite(loss.item())
        for sum_, gradient in zip(total, _gradients(loss, parameters), strict=True):
            sum_.add_(gradient, alpha=share)
    return total, mean_loss


def require_finite(loss: float) -> float:
    if not math.isfinite(loss):
        raise TrainingFailed(f"the training loss is {loss}: lower the learning rate or check the data")
    return loss


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that training moves; a user may have frozen others."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _gradients(loss: torch.Tensor, parameters: list[nn.Parameter]) -> Sequence[torch.Tensor]:
    """Gradients by parameter; zero for one that the loss does not depend on."""
    return torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
