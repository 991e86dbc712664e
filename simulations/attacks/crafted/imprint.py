"""An imprint layer: bins of one linear functional, so that neighbouring rows differ by the samples of one bin.

Every unit measures the same thing, the mean of all pixels, and fires above its own threshold. The thresholds are
quantiles of what public inputs measure. Unit i fires for all samples above threshold i: its gradient less that of unit
i + 1 is the sum over the samples between the two thresholds, and mostly that is one or none. (Fowl et al., "Robbing
the Fed", 2022.)

Implements specs/attacks.md, section 5.
"""

from __future__ import annotations

import numpy as np
import torch

from veilsum.simulations.attacks.crafted.craft import CraftedGradients
from veilsum.simulations.attacks.metrics import Reals


class Imprint(CraftedGradients):
    name = "imprint"
    summary = "a server's own model, whose rows differ by single samples"

    def first_layer(self, public: Reals, units: int, seed: int) -> tuple[Reals, Reals]:
        pixels = public.shape[1]
        measured = public.mean(axis=1)
        thresholds = np.quantile(measured, (np.arange(units) + 0.5) / units)
        # The lowest threshold is far below, so that samples unlike all public ones fall into a bin as well.
        thresholds[0] = min(0.0, thresholds[0]) - 1.0
        return np.full((units, pixels), 1.0 / pixels), -thresholds

    def rows(self, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        none = torch.zeros_like
        return (
            weight - torch.cat([weight[1:], none(weight[:1])]),
            bias - torch.cat([bias[1:], none(bias[:1])]),
        )
