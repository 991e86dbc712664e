"""Gradient inversion with a generative prior: search among images that a generator can make.

First the latent vectors, then the generator's weights, which leaves the range of the generator where the gradient asks
for it. A prior alone already resembles the truth: without the null row, the attack on noise, its similarity says
nothing about the view.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from veilsum.simulations.attacks.attack import StagedAttack
from veilsum.simulations.attacks.gradient.inverting import unit
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import (
    Best,
    Budget,
    Reconstruction,
    Victim,
    fast_convolutions,
    rebuilt,
)
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.attacks.model.gan import LATENT, Prior


class Generative(StagedAttack):
    """Images behind one gradient, among those that a prior makes."""

    name = "generative"
    summary = "searches images that a generator makes"
    heavy = True
    needs_gradient = True

    def invert(self, target: Target, budget: Budget, seed: int, prior: Prior) -> Reconstruction:
        victim = Victim(target)
        labels = recover_labels(victim, seed)
        wanted = unit(victim.gradient)
        best = Best(budget)
        source = victim.random(seed, "generative", *target.owners, target.round)
        latent = torch.randn(target.batch, LATENT, generator=source).to(victim.device).requires_grad_(True)
        generator = prior.copy_of_generator().to(victim.device)

        def mismatch() -> torch.Tensor:
            images = generator(latent).reshape(victim.shape)
            found = unit(list(victim.gradients(functional.cross_entropy(victim.module(images), labels))))
            loss = torch.stack([(a - b).square().sum() for a, b in zip(found, wanted, strict=True)]).sum()
            best.note(float(loss.detach()), [images])
            return loss

        half = budget.evaluations // 2
        with fast_convolutions(torch.empty(victim.shape)):
            _descend(mismatch, [latent], 3e-2, half, best)
            _descend(mismatch, [latent, *generator.parameters()], 1e-3, half, best)
        if not best.values:
            best.stopped, best.values = "diverged", [torch.zeros(victim.shape)]
        return rebuilt(target, best, labels)


def _descend(
    mismatch: Callable[[], torch.Tensor], unknowns: list[torch.Tensor], rate: float, steps: int, best: Best
) -> None:
    optimiser = torch.optim.Adam(unknowns, lr=rate)
    for _ in range(steps):
        loss = mismatch()
        if best.out_of_time or not bool(torch.isfinite(loss)):
            best.stopped = "time" if best.out_of_time else best.stopped
            return
        optimiser.zero_grad()
        torch.autograd.backward([loss], inputs=unknowns)
        optimiser.step()
