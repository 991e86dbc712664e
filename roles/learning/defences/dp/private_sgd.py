"""Gradient steps with an account: every sample's gradient is clipped, and noise covers the largest of them.

A step draws each sample with the same probability, by coins that are as secret as the noise: the account
counts on nobody knowing who is in a batch, so the agreed seed does not choose it. The sum of the clipped
gradients and the noise are divided by the expected, not the actual size of the batch. A step without a
sample is a step of noise.

Norms and noise cover all trained parameters together, a private head included.

A layer that mixes samples (batch norm) has no gradient of one sample, and floating buffers would travel
without noise: models with either are refused.

Implements specs/defences.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.defences.guard import Gradients, Party, RoundWork
from veilsum.roles.learning.defences.private import Mechanism, PrivateKey, Stream
from veilsum.roles.learning.training.loop import Feed, Objective, require_finite, trainable
from veilsum.roles.learning.training.optimizers import make_optimizer
from veilsum.roles.learning.training.settings import TrainingOptions

_NUMBERS_AT_ONCE = 1 << 24
_SAMPLES_AT_ONCE = 256


class _SampleLoss(nn.Module):
    """The loss of one sample, as a module, so that its parameters can be passed as arguments."""

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.module = module
        self._objective = objective

    def forward(self, sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self._objective(self.module, sample.unsqueeze(0), target.unsqueeze(0))


@dataclass(frozen=True)
class Clipping:
    """Gradients of single samples, scaled down to a norm: the 2-norm for Gaussian, the 1-norm for Laplace."""

    bound: float
    mechanism: Mechanism

    def total(
        self, module: nn.Module, objective: Objective, feed: Feed, positions: npt.NDArray[np.int64]
    ) -> Gradients:
        """The sum of the clipped gradients, by trainable parameter, and the sum of the losses."""
        parameters = trainable(module)
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        losses = 0.0
        size = max(1, min(_SAMPLES_AT_ONCE, _NUMBERS_AT_ONCE // sum(map(torch.numel, parameters))))
        for start in range(0, positions.size, size):
            inputs, targets = feed.batch(positions[start : start + size])
            gradients, values = _per_sample(module, objective, inputs, targets)
            losses += require_finite(float(values.sum()))
            factors = self._factors(gradients)
            for total, gradient in zip(sums, gradients, strict=True):
                total.add_(torch.tensordot(factors, gradient, dims=1))
        return sums, losses

    def _factors(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        order = 2 if self.mechanism == "gaussian" else 1
        norms = torch.stack([torch.linalg.vector_norm(one.flatten(1), order, dim=1) for one in gradients])
        norm = torch.linalg.vector_norm(norms, order, dim=0)
        factors: torch.Tensor = self.bound / norm.clamp_min(self.bound)
        return factors


@dataclass(frozen=True)
class PrivateFitter:
    """The loop of a party whose steps are private."""

    clipping: Clipping
    sigma: float
    options: TrainingOptions
    key: PrivateKey = field(repr=False)

    def train(
        self, module: nn.Module, objective: Objective, feed: Feed, order: np.random.Generator, work: RoundWork
    ) -> float:
        step = make_optimizer(trainable(module), self.options, work.learning_rate)
        module.train()
        plan = Plan.of(self.options, len(feed.samples))
        total, count = 0.0, 0
        for positions, noise in self._draws(len(feed.samples), plan, work):
            gradients, losses = self._noisy(module, objective, feed, positions, plan, noise)
            step(gradients)
            total, count = total + losses, count + positions.size
        return total / max(1, count)

    def gradient(
        self, module: nn.Module, objective: Objective, feed: Feed, positions: np.ndarray, work: RoundWork
    ) -> Gradients:
        module.train()
        plan = Plan.of(self.options, len(feed.samples))
        ((chosen, noise),) = self._draws(len(feed.samples), plan, work)
        gradients, losses = self._noisy(module, objective, feed, chosen, plan, noise)
        return gradients, losses / max(1, chosen.size)

    def _draws(
        self, samples: int, plan: Plan, work: RoundWork
    ) -> Iterator[tuple[npt.NDArray[np.int64], Stream]]:
        """For each step, who is in it, and where its noise comes from."""
        coins = self.key.stream("dp-batches", work.label)
        for step in range(plan.steps):
            yield coins.chosen(samples, plan.rate), self.key.stream("dp-noise", work.label, step)

    def _noisy(
        self,
        module: nn.Module,
        objective: Objective,
        feed: Feed,
        positions: npt.NDArray[np.int64],
        plan: Plan,
        noise: Stream,
    ) -> Gradients:
        sums, losses = self.clipping.total(module, objective, feed, positions)
        scale = self.sigma * self.clipping.bound
        for total in sums:
            if scale:
                drawn = scale * noise.noise(self.clipping.mechanism, total.numel())
                total.add_(torch.from_numpy(drawn.astype(np.float32)).reshape(total.shape).to(total.device))
            total.div_(plan.expected_batch)
        return sums, losses


@dataclass(frozen=True)
class Plan:
    """How often, and with which probability, a sample may be used in one round."""

    rate: float
    steps: int
    expected_batch: float

    @classmethod
    def of(cls, options: TrainingOptions, samples: int) -> Plan:
        batch = min(options.batch_size or samples, samples)
        if options.payload == "gradient":
            batch = samples if options.gradient_batch == "full" else batch
            return cls(batch / samples, 1, batch)
        return cls(batch / samples, options.epochs * math.ceil(samples / batch), batch)


def require_separable(party: Party) -> None:
    """Refuse a model that mixes samples, or one with buffers that would travel without noise."""
    mixing = [
        name
        for name, layer in party.network.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    ]
    buffers = [entry.name for entry in party.layout if entry.kind == "buffer"]
    if mixing or buffers:
        raise LocalProtocolError(
            f"defence dp with clip: {', '.join(mixing or buffers)} mixes samples or keeps statistics of them; use "
            "a model without batch norm, such as vgg16-gn with its group norm"
        )


def _per_sample(
    module: nn.Module, objective: Objective, inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Gradients by trainable parameter with a leading axis of samples, and the losses."""
    loss = _SampleLoss(module, objective)
    parameters = {name: one.detach() for name, one in loss.named_parameters() if one.requires_grad}

    def of_one(
        parameters: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        result: torch.Tensor = functional_call(loss, parameters, (sample, target))
        return result

    run = vmap(grad_and_value(of_one), in_dims=(None, 0, 0), randomness="different")
    gradients, losses = run(parameters, inputs, targets)
    return list(gradients.values()), losses
