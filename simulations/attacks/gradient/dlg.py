"""Deep leakage from gradients: find images whose gradient is the one that was sent.

DLG is kept as published: image and soft label together from normal noise, L-BFGS without a line search, and the best of
four starts by matching loss where the budget allows restarts, since a single one is often lost. It computes in
float64: against a defence its minimum is flat, and in float32 the rounding of the machine would choose the image. iDLG
reads the label first and optimises the image alone; it gets the line search, without which batches do not converge.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional

from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import Budget, Reconstruction, Victim, minimise, rebuilt
from veilsum.simulations.attacks.gradient.targets import Target

RESTARTS = 3


class Dlg(GradientInversion):
    """Image and label together."""

    name = "dlg"
    summary = "image and label by matching the gradient"

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        victim = Victim(target, dtype=torch.float64)

        def start(attempt: int) -> list[torch.Tensor]:
            source = victim.random(seed, "dlg", *target.owners, target.round, attempt)
            images = torch.randn(victim.shape, generator=source)
            labels = torch.randn(target.batch, victim.classes, generator=source)
            return [images.to(victim.device, victim.dtype), labels.to(victim.device, victim.dtype)]

        def objective(values: list[torch.Tensor]) -> torch.Tensor:
            images, labels = values
            scores = functional.log_softmax(victim.module(images), dim=1)
            loss = -(functional.softmax(labels, dim=1) * scores).sum(dim=1).mean()
            return victim.mismatch(victim.gradients(loss))

        patient = replace(budget, restarts=max(budget.restarts, RESTARTS) if budget.restarts else 0)
        best = minimise(start, objective, patient, line_search=False)
        return rebuilt(target, best, best.values[1].argmax(dim=1))


class Idlg(GradientInversion):
    """The label from the last layer, then the image."""

    name = "idlg"
    summary = "label from the last layer, then the image"

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        victim = Victim(target)
        labels = recover_labels(victim, seed)

        def start(attempt: int) -> list[torch.Tensor]:
            source = victim.random(seed, "idlg", *target.owners, target.round, attempt)
            return [torch.rand(victim.shape, generator=source).to(victim.device)]

        def objective(values: list[torch.Tensor]) -> torch.Tensor:
            loss = functional.cross_entropy(victim.module(values[0]), labels)
            return victim.mismatch(victim.gradients(loss))

        best = minimise(start, objective, budget)
        return rebuilt(target, best, labels)
