"""A model in the attacker's hands, and what it says about samples."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.learning.task import Array, Samples
from veilsum.roles.learning.training.vectorize import load_vector
from veilsum.roles.views.view import PublicFacts
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.metrics import Reals

_PIXEL_MAX = 255


class Exposed:
    """A network of the federation's architecture with the weights of one model."""

    def __init__(self, facts: PublicFacts, model: Model) -> None:
        name = config_of(facts).model
        assert name is not None
        self.module: nn.Module = build_model(name, facts.input_shape, facts.outputs, seed=0)
        load_vector(self.module, model)
        self.module.eval()
        self.classes = facts.outputs

    def logits(self, samples: Samples) -> torch.Tensor:
        with torch.no_grad():
            outputs: torch.Tensor = self.module(as_pixels(samples.inputs))
        return outputs

    def losses(self, samples: Samples) -> Reals:
        labels = torch.from_numpy(samples.targets)
        found = functional.cross_entropy(self.logits(samples), labels, reduction="none")
        numbers: Reals = np.nan_to_num(found.numpy().astype(np.float64), nan=1e9, posinf=1e9)
        return numbers


def as_pixels(inputs: Array) -> torch.Tensor:
    """Inputs as the model sees them."""
    found = torch.from_numpy(inputs)
    return found.to(torch.float32) / _PIXEL_MAX if found.dtype == torch.uint8 else found
