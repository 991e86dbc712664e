"""The offset by least squares on the client's own labels, as `least_squares.py` has it.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np

from veilsum.roles.learning.task import Array
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.perturbation.kinds import PredictionRecovery
from veilsum.simulations.attacks.perturbation.least_squares import estimate_offset
from veilsum.simulations.attacks.perturbation.predictions import Classes, PerturbedModel, Reals


class LineFit(PredictionRecovery):
    """One regression line per output."""

    name = "noise-line"
    summary = "offset off by least squares on own labels"

    def predict(self, view: View, inputs: Array) -> Classes:
        perturbed = PerturbedModel(view)
        return perturbed.classes_without(line_offset(perturbed), inputs)


def line_offset(perturbed: PerturbedModel) -> Reals:
    """The offset by one regression line per output."""
    outputs, alpha = perturbed.outputs(perturbed.own.inputs)
    targets = np.eye(outputs.shape[1])[perturbed.own.targets]
    return estimate_offset(outputs, alpha, targets)
