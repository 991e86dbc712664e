"""Trap weights: rows with a negative half that outweighs the positive one, so that each unit fires for few samples.

Half of the weights of a row are negative, and scaled up until the row fires for a small share of public inputs only. A
unit that fires for one sample of a gradient alone gives that sample by division, as in `analytic`; an honest
layer has such units for small batches only. (Boenisch et al., "When the Curious Abandon Honesty", 2021.)

Implements specs/attacks.md, section 5.
"""

from __future__ import annotations

import numpy as np
import torch

from veilsum.roles.learning.seeds import generator
from veilsum.simulations.attacks.crafted.craft import CraftedGradients
from veilsum.simulations.attacks.metrics import Reals

FIRING = 0.03
"""The share of public inputs for which a unit fires."""


class TrapWeights(CraftedGradients):
    name = "trap-weights"
    summary = "a server's own model, whose units fire for few samples"

    def first_layer(self, public: Reals, units: int, seed: int) -> tuple[Reals, Reals]:
        pixels = public.shape[1]
        draw = generator(seed, "trap weights")
        rows = np.abs(draw.standard_normal((units, pixels)))
        negative = np.argsort(draw.random((units, pixels)), axis=1) < pixels // 2
        plus, minus = np.where(negative, 0.0, rows), np.where(negative, rows, 0.0)
        # A row fires where its positive part exceeds its negative part times the scale.
        ratio = (public @ plus.T) / np.maximum(public @ minus.T, 1e-9)
        scale = np.quantile(ratio, 1 - FIRING, axis=0)
        return (plus - scale[:, None] * minus) / np.sqrt(pixels), np.zeros(units)

    def rows(self, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return weight, bias
