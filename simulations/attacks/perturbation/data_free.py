"""Estimate the offset from the perturbed last layer alone, without any data.

A row of the perturbed head is the true row, entry by entry rescaled and roughly centred at zero, plus the same
constant everywhere. The median of the row estimates the constant, and within a group all rows estimate one
number, gamma, because their directions are public.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.roles.learning.task import Array
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.perturbation.kinds import PredictionRecovery
from veilsum.simulations.attacks.perturbation.predictions import Classes, PerturbedModel, Reals


class DataFree(PredictionRecovery):
    """The medians of the perturbed head."""

    name = "noise-data-free"
    summary = "offset off by medians of the head, no data"

    def predict(self, view: View, inputs: Array) -> Classes:
        perturbed = PerturbedModel(view)
        head = perturbed.module.get_submodule("head")
        assert isinstance(head, nn.Linear)
        weight = head.weight.detach().double().numpy()
        return perturbed.classes_without(estimate_offset(weight, perturbed.public), inputs)


def estimate_offset(head_weight: Reals, public: PublicPerturbation) -> Reals:
    """The secret offset of every output, from one row of weights per output."""
    per_row = np.median(head_weight, axis=1) / public.feature_weight
    directions = public.grouped_directions()
    gammas = directions @ per_row / (directions**2).sum(axis=1)
    estimate: Reals = gammas[public.partition] * public.directions
    return estimate
