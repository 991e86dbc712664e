"""Attacks from outside the package: one on gradients, and one that makes its findings of a whole view.

They are named as `tests.examples.own_attack:LoudestRow` and `tests.examples.own_attack:LastModel`.
"""

from __future__ import annotations

import numpy as np

from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import Attack, Findings, GradientInversion
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.gradient.matching import Reconstruction, Victim
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.attacks.model.best import best_model


class LoudestRow(GradientInversion):
    """The input of the first dense layer from the rows with the largest bias gradients."""

    name = "loudest-row"
    summary = "input of the first dense layer, from one row"
    model = "mlp2:64"

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        victim = Victim(target)
        weight, bias = victim.gradient[:2]
        rows = bias.abs().topk(target.batch).indices
        images = (weight[rows] / bias[rows, None]).reshape(victim.shape).numpy()
        labels = np.zeros(target.batch, dtype=np.int64)
        return Reconstruction(target, images, labels, 0.0, 1, 0.0, "converged")


class LastModel(Attack):
    """The newest model in a server's view."""

    name = "last-model"
    by = "server"

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        return Findings(model=best_model(view))


class Impersonator(LastModel):
    """It calls itself by the name of a built-in attack, and is refused."""

    name = "idlg"
