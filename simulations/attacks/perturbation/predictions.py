"""A curious client of server-side perturbation: true predictions from a perturbed model and its own labels.

Hidden rescalings leave the outputs as they are. What is left is the offset: outputs are the true ones plus alpha, which
the client computes from its features, times one secret number per output. Those numbers are the same for all samples
of a round. So fit them: by logistic regression on the client's own labelled samples (cross entropy is convex in
them), or by least squares; or project on what the public directions leave untouched, which needs no labels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced
from veilsum.roles.learning.task import Array, Samples
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit
from veilsum.simulations.attacks.membership.membership import Exposed, as_pixels
from veilsum.simulations.attacks.perturbation import least_squares, projection

Reals = NDArray[np.float64]


class PerturbedModel:
    """The newest perturbed model in a client's view, and what it says about inputs."""

    def __init__(self, view: View) -> None:
        models = [message for _, message in view.received(RoundOpened) if len(message.model)]
        announced = [message for _, message in view.received(PerturbationAnnounced)]
        if not models or not announced or not view.own_data:
            raise AttackDoesNotFit("the view is not that of a client of perturbed or bilateral")
        self.module = Exposed(view.facts, models[-1].model).module
        self.public = announced[-1].public
        self.own = Samples.joined(view.own_data.values())

    def outputs(self, inputs: Array) -> tuple[Reals, Reals]:
        """Perturbed outputs, and alpha of each sample."""
        features, head = self.module.get_submodule("features"), self.module.get_submodule("head")
        with torch.no_grad():
            hidden = features(as_pixels(inputs))
            found = head(hidden)
        alpha = hidden.double().sum(dim=1) * self.public.feature_weight
        return found.double().numpy(), alpha.numpy()


def raw_predictions(view: View, inputs: Array) -> NDArray[np.int64]:
    """What a client reads that does nothing."""
    outputs, _ = PerturbedModel(view).outputs(inputs)
    return predicted_classes(outputs)


def projected_predictions(view: View, inputs: Array) -> NDArray[np.int64]:
    """What the public directions cannot hide."""
    perturbed = PerturbedModel(view)
    outputs, _ = perturbed.outputs(inputs)
    return (
        projection.guess_labels(outputs, perturbed.public)
        if perturbed.public.has_offset
        else predicted_classes(outputs)
    )


def fitted_predictions(view: View, inputs: Array) -> NDArray[np.int64]:
    """What is left after the offset was fitted to the client's own labels."""
    perturbed = PerturbedModel(view)
    outputs, alpha = perturbed.outputs(perturbed.own.inputs)
    offset = fit_offset(outputs, alpha, perturbed.own.targets)
    outputs, alpha = perturbed.outputs(inputs)
    return predicted_classes(least_squares.remove_offset(outputs, alpha, offset))


def predicted_classes(outputs: Reals) -> NDArray[np.int64]:
    classes: NDArray[np.int64] = np.argmax(outputs, axis=1).astype(np.int64)
    return classes


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
