"""What attacks with a crafted model have in common: a dense first layer, and a head that passes everything on.

Row i of the first layer has, per sample, the gradient delta_i x and the bias gradient delta_i, where it fires. The head
of a crafted model is the same for every unit, so delta depends on the sample alone, and sums of rows stay readable.
What is left to an attack is which units fire for which samples. A sum over parties is as readable as a single
gradient: only the number of samples counts, not the number of those who hold them.

Implements specs/attacks.md, section 5.
"""

from __future__ import annotations

import time
from abc import abstractmethod

import numpy as np
import torch

from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.vectorize import to_vector
from veilsum.roles.views.view import PublicFacts
from veilsum.simulations.attacks.attack import StagedAttack
from veilsum.simulations.attacks.exposed import as_pixels
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.gradient.analytic import first_dense
from veilsum.simulations.attacks.gradient.matching import Reconstruction, Victim, to_images
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.attacks.metrics import Reals

_FIRES, _HEAD_SCALE = 1e-5, 0.5


class CraftedGradients(StagedAttack):
    """A server's own first model, and what it reads out of a gradient that was taken there."""

    knowledge = "L1"
    model = "mlp2:256"
    by = "server"

    @abstractmethod
    def first_layer(self, public: Reals, units: int, seed: int) -> tuple[Reals, Reals]:
        """Weights and biases, from public inputs (count, pixels) of the same kind as the private ones."""

    @abstractmethod
    def rows(self, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Combinations of the rows of a gradient that may stand for one sample each."""

    def craft(self, facts: PublicFacts, public: Samples, seed: int) -> Model:
        """The model that the server sends in place of the true one."""
        name = config_of(facts).model
        assert name is not None
        module = build_model(name, facts.input_shape, facts.outputs, seed=0)
        known = as_pixels(public.inputs).reshape(len(public), -1).numpy().astype(np.float64)
        first, *_, head, head_bias = module.parameters()
        weight, bias = self.first_layer(known, len(first), seed)
        column = generator(seed, "crafted head").standard_normal(facts.outputs)
        with torch.no_grad():
            first.copy_(torch.from_numpy(weight))
            list(module.parameters())[1].copy_(torch.from_numpy(bias))
            head.copy_(torch.from_numpy(_HEAD_SCALE * column / len(first))[:, None].expand_as(head))
            head_bias.zero_()
        return to_vector(module)

    def read(self, target: Target) -> Reconstruction:
        """All samples that the gradient seems to hold; black ones where it shows fewer than stand behind it."""
        started = time.process_time()
        victim = Victim(target)
        weight, bias = self.rows(*first_dense(victim))
        alone = bias.abs() > _FIRES * bias.abs().max().clamp_min(1e-30)
        images = torch.zeros(max(int(alone.sum()), target.batch), weight.shape[1], dtype=weight.dtype)
        images[: int(alone.sum())] = weight[alone] / bias[alone, None]
        found = to_images(images.reshape(-1, *victim.shape[1:]))
        labels = np.zeros(0, dtype=np.int64)
        return Reconstruction(target, found, labels, 0.0, 1, time.process_time() - started, "converged")
