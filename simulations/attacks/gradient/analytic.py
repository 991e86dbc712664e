"""Division instead of optimisation: a dense layer's gradient shows its input.

For one sample the gradient of row i of a dense layer is its bias gradient times the input. So the input is any row over
its bias gradient; all rows together give it by least squares, which halves the noise of a defence several times
over. With several samples a row is a mixture, unless a unit fires for one sample only: then rows that belong to
different samples give different images, and the rows with the largest bias gradients are taken.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import time

import torch

from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import (
    AttackDoesNotFit,
    Budget,
    Reconstruction,
    Victim,
    to_images,
)
from veilsum.simulations.attacks.gradient.targets import Target


class Analytic(GradientInversion):
    """Needs no budget."""

    name = "analytic"
    summary = "input of the first dense layer, by division"
    model = "mlp2:64"

    def invert(self, target: Target, _: Budget, seed: int) -> Reconstruction:
        started = time.process_time()
        victim = Victim(target)
        weight, bias = first_dense(victim)
        if target.batch == 1:
            images = (bias @ weight / bias.square().sum().clamp_min(1e-30)).reshape(victim.shape)
        else:
            if target.batch > len(bias):
                raise AttackDoesNotFit(
                    f"analytic inversion reads one image off each unit: {len(bias)} units are too few for "
                    f"{target.batch} images"
                )
            rows = bias.abs().topk(target.batch).indices
            images = (weight[rows] / bias[rows, None]).reshape(victim.shape)
        labels = recover_labels(victim, seed)
        spent = time.process_time() - started
        return Reconstruction(target, to_images(images), labels.cpu().numpy(), 0.0, 1, spent, "converged")


def first_dense(victim: Victim) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of weight and bias of the layer that sees the pixels themselves."""
    pixels = int(torch.tensor(victim.shape[1:]).prod())
    weight_entry, bias_entry = victim.entries[0], victim.entries[1] if len(victim.entries) > 1 else None
    fits = bias_entry is not None and len(weight_entry.shape) == 2 and weight_entry.shape[1] == pixels
    if not fits or bias_entry is None or bias_entry.shape != weight_entry.shape[:1]:
        raise AttackDoesNotFit(
            "analytic inversion needs a first layer that is dense with a bias, as in mlp2: this model begins otherwise"
        )
    weight, bias = victim.gradient[:2]
    return weight, bias
