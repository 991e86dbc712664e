"""The offset fitted to the client's own labels by logistic regression: cross entropy is convex in it.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from veilsum.roles.learning.task import Array
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.perturbation import least_squares
from veilsum.simulations.attacks.perturbation.kinds import PredictionRecovery
from veilsum.simulations.attacks.perturbation.predictions import PerturbedModel, Reals


class OffsetFit(PredictionRecovery):
    """What is left after the offset was fitted to the client's own labels."""

    name = "perturbation"
    summary = "true predictions from a perturbed model"

    def predict(self, view: View, inputs: Array) -> NDArray[np.int64]:
        perturbed = PerturbedModel(view)
        return perturbed.classes_without(fitted_offset(perturbed), inputs)


def fitted_offset(perturbed: PerturbedModel) -> Reals:
    """The offset that suits the labels of the client's own samples best."""
    outputs, alpha = perturbed.outputs(perturbed.own.inputs)
    return fit_offset(outputs, alpha, perturbed.own.targets)


def fit_offset(outputs: Reals, alpha: Reals, labels: Array) -> Reals:
    """The secret number of every output by logistic regression, started from least squares."""
    targets = np.eye(outputs.shape[1])[labels]
    first = least_squares.estimate_offset(outputs, alpha, targets)
    offset = nn.Parameter(torch.from_numpy(first))
    scores, weight, truth = (
        torch.from_numpy(outputs),
        torch.from_numpy(alpha)[:, None],
        torch.from_numpy(labels),
    )
    optimiser = torch.optim.LBFGS([offset], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(scores - weight * offset, truth)
        torch.autograd.backward([loss])
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]  # torch does not say
    found: Reals = offset.detach().numpy()
    return found
