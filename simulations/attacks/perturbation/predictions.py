"""A perturbed model in a client's hands, and what a client reads that does little.

Hidden rescalings leave the outputs as they are. What is left is the offset: outputs are the true ones plus alpha, which
the client computes from its features, times one secret number per output. Those numbers are the same for all samples
of a round, so they can be fitted or solved for; or a client projects on what the public directions leave untouched,
which needs no labels.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced
from veilsum.roles.learning.task import Array, Samples
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.exposed import Exposed, as_pixels
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.perturbation import projection
from veilsum.simulations.attacks.perturbation.least_squares import remove_offset

Reals = NDArray[np.float64]
Classes = NDArray[np.int64]


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

    def classes_without(self, offset: Reals, inputs: Array) -> Classes:
        """What it predicts once an offset is taken off its outputs."""
        outputs, alpha = self.outputs(inputs)
        return predicted_classes(remove_offset(outputs, alpha, offset))


def raw_predictions(view: View, inputs: Array) -> Classes:
    """What a client reads that does nothing."""
    outputs, _ = PerturbedModel(view).outputs(inputs)
    return predicted_classes(outputs)


def projected_predictions(view: View, inputs: Array) -> Classes:
    """What the public directions cannot hide."""
    perturbed = PerturbedModel(view)
    outputs, _ = perturbed.outputs(inputs)
    return (
        projection.guess_labels(outputs, perturbed.public)
        if perturbed.public.has_offset
        else predicted_classes(outputs)
    )


def predicted_classes(outputs: Reals) -> Classes:
    classes: Classes = np.argmax(outputs, axis=1).astype(np.int64)
    return classes
