"""SGD with momentum and Adam, one step at a time.

They do exactly what `torch.optim` does, to the bit (a test compares them). Its classes are not used because
making the first one imports torch's compiler: three seconds and about a hundred megabytes for every process
that trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from veilsum.roles.learning.training.settings import TrainingOptions

Step: TypeAlias = Callable[[Sequence[torch.Tensor]], None]

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


def make_optimizer(
    parameters: Sequence[torch.Tensor], options: TrainingOptions, learning_rate: float
) -> Step:
    """A function that moves the parameters by one step, given their gradients."""
    if options.optimizer == "adam":
        return _Adam(parameters, learning_rate)
    return _Sgd(parameters, learning_rate, options.momentum)


class _Sgd:
    def __init__(self, parameters: Sequence[torch.Tensor], learning_rate: float, momentum: float) -> None:
        self._parameters = parameters
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._velocities: list[torch.Tensor] | None = None

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor]) -> None:
        if self._momentum:
            gradients = self._smoothed(gradients)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.add_(gradient, alpha=-self._learning_rate)

    def _smoothed(self, gradients: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        if self._velocities is None:
            self._velocities = [gradient.clone() for gradient in gradients]
        else:
            for velocity, gradient in zip(self._velocities, gradients, strict=True):
                velocity.mul_(self._momentum).add_(gradient)
        return self._velocities


class _Adam:
    def __init__(self, parameters: Sequence[torch.Tensor], learning_rate: float) -> None:
        self._parameters = parameters
        self._learning_rate = learning_rate
        self._means = [torch.zeros_like(parameter) for parameter in parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in parameters]
        self._steps = 0

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor]) -> None:
        self._steps += 1
        step_size = self._learning_rate / (1 - _BETA_1**self._steps)
        square_scale = math.sqrt(1 - _BETA_2**self._steps)
        moments = zip(self._parameters, gradients, self._means, self._squares, strict=True)
        for parameter, gradient, mean, square in moments:
            mean.lerp_(gradient, 1 - _BETA_1)
            square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
            parameter.addcdiv_(mean, (square.sqrt() / square_scale).add_(_EPSILON), value=-step_size)
