"""Inverting gradients: match the direction of the gradient, prefer smooth images.

The direction does not care about the size of the gradient, so the attack also reads updates that were scaled or
clipped. With several local steps it repeats them: it trains its candidate images as the victim trained its own, and
matches the change of the model; for a mean of several parties, each party's images on their own. Which image is whose
does not matter for one image each; for more, labels are dealt out in order, which is a guess.

Published: Adam on the sign of the gradient of 1 - cosine, 4,800 to 24,000 steps. Here: L-BFGS on the squared distance
of the two unit vectors, which is twice the same number without the cancellation that leaves 1 - cosine at the
rounding of float32; the same images come back within a hundred evaluations.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import Budget, Reconstruction, Victim, minimise, rebuilt
from veilsum.simulations.attacks.gradient.targets import Target

TOTAL_VARIATION = 1e-7
CONVERGED = 1e-11


class Inverting(GradientInversion):
    """The direction of the gradient, through local steps where there are several."""

    name = "inverting"
    summary = "matches the direction, also through local steps"

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        victim = Victim(target)
        labels = recover_labels(victim, seed)
        wanted = unit(victim.gradient)

        def start(attempt: int) -> list[torch.Tensor]:
            source = victim.random(seed, "inverting", *target.owners, target.round, attempt)
            return [torch.rand(victim.shape, generator=source).to(victim.device)]

        def objective(values: list[torch.Tensor]) -> torch.Tensor:
            images = values[0]
            change = mean_change(victim.module, images, labels, target)
            apart = torch.stack(
                [(a - b).square().sum() for a, b in zip(unit(change), wanted, strict=True)]
            ).sum()
            return apart + TOTAL_VARIATION * total_variation(images)

        best = minimise(start, objective, budget, CONVERGED)
        return rebuilt(target, best, labels)


def mean_change(
    module: nn.Module, images: torch.Tensor, labels: torch.Tensor, target: Target
) -> list[torch.Tensor]:
    """What a mean of several parties shows: each takes its local steps on its own images, from the same model."""
    if target.local_steps == 1:
        return simulated_change(module, images, labels, 1, target.learning_rate)
    parties = len(target.owners)
    changes = [
        simulated_change(module, its_images, its_labels, target.local_steps, target.learning_rate)
        for its_images, its_labels in zip(images.chunk(parties), labels.chunk(parties), strict=True)
    ]
    return [torch.stack(parts).mean(dim=0) for parts in zip(*changes, strict=True)]


def simulated_change(
    module: nn.Module, images: torch.Tensor, labels: torch.Tensor, steps: int, learning_rate: float
) -> list[torch.Tensor]:
    """The sum of the gradients along the victim's local steps, as a function of the images."""
    names = [name for name, _ in module.named_parameters()]
    current: dict[str, torch.Tensor] = dict(module.named_parameters())
    total: list[torch.Tensor] = []
    for _ in range(steps):
        loss = functional.cross_entropy(functional_call(module, current, (images,)), labels)
        gradients = torch.autograd.grad(loss, [current[name] for name in names], create_graph=True)
        total = [a + b for a, b in zip(total, gradients, strict=True)] if total else list(gradients)
        if steps > 1:
            current = {
                name: current[name] - learning_rate * gradient
                for name, gradient in zip(names, gradients, strict=True)
            }
    return total


def unit(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same direction with length one."""
    size = torch.stack([one.square().sum() for one in gradients]).sum().sqrt().clamp_min(1e-30)
    return [one / size for one in gradients]


def total_variation(images: torch.Tensor) -> torch.Tensor:
    across = (images[..., 1:] - images[..., :-1]).abs().mean()
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
    return across + down
