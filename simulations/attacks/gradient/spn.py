"""The adaptive attack on a secret polarization network: the private head is one unknown vector per image.

Whatever the private head and its codes are, they act on the shared layers only through the gradient u of their loss
with respect to the features. So match the gradient of `cross entropy + <u, features>` over the image and u together.
Nothing has to be guessed about the head, the codes, their number or alpha2. The shared head does not feel the private
loss at all: its gradient is the plain one, so the label is read from it as if there were no defence.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import (
    AttackDoesNotFit,
    Budget,
    Reconstruction,
    Victim,
    minimise,
    rebuilt,
)
from veilsum.simulations.attacks.gradient.targets import Target


class SpnAdaptive(GradientInversion):
    """Image and private head together."""

    name = "spn-adaptive"
    knowledge = "L1"
    summary = "the private head as an unknown vector"
    against = "spn"

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        victim = Victim(target)
        features, head = getattr(victim.module, "features", None), getattr(victim.module, "head", None)
        if not isinstance(features, nn.Module) or not isinstance(head, nn.Linear):
            raise AttackDoesNotFit("spn-adaptive needs a model made of features and a linear head")
        labels = recover_labels(victim, seed)

        def start(attempt: int) -> list[torch.Tensor]:
            source = victim.random(seed, "spn", *target.owners, target.round, attempt)
            images = torch.rand(victim.shape, generator=source)
            return [images.to(victim.device), torch.zeros(target.batch, head.in_features).to(victim.device)]

        def objective(values: list[torch.Tensor]) -> torch.Tensor:
            images, pull = values
            hidden = features(images)
            loss = functional.cross_entropy(head(hidden), labels) + (pull * hidden).sum() / target.batch
            return victim.mismatch(victim.gradients(loss))

        best = minimise(start, objective, budget)
        return rebuilt(target, best, labels)
