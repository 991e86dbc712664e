"""The adaptive attack on selective sharing: the support is visible, so match the shared entries alone.

An entry that was not shared says nothing, and the naive attack's mistake is to believe that it is zero.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import Budget, Reconstruction, Victim, minimise, rebuilt
from veilsum.simulations.attacks.gradient.targets import Target


class PpdlAdaptive(GradientInversion):
    """The entries that were shared, and no others."""

    name = "ppdl-adaptive"
    knowledge = "L1"
    summary = "matches the shared entries alone"
    against = "ppdl"

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        victim = Victim(target)
        labels = recover_labels(victim, seed)
        support = [(gradient != 0).to(gradient.dtype) for gradient in victim.gradient]

        def start(attempt: int) -> list[torch.Tensor]:
            source = victim.random(seed, "ppdl", *target.owners, target.round, attempt)
            return [torch.rand(victim.shape, generator=source).to(victim.device)]

        def objective(values: list[torch.Tensor]) -> torch.Tensor:
            loss = functional.cross_entropy(victim.module(values[0]), labels)
            return victim.mismatch(victim.gradients(loss), support)

        best = minimise(start, objective, budget)
        shared = float(torch.stack([one.mean() for one in support]).mean())
        return rebuilt(target, best, labels, {"support": shared})
