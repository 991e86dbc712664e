"""Generative model inversion: images that a trained model takes for one of its private classes.

The attacker holds the model and a prior over images of other classes. It searches latent vectors whose images look
real to the critic and belong to the wanted class for the model. No gradient of anyone is needed: whoever holds
the global model can do this.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from veilsum.roles.learning.seeds import derive_seed
from veilsum.simulations.attacks.attack import StagedAttack
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.model.gan import LATENT, Prior

_IDENTITY_WEIGHT = 100.0


class Gmi(StagedAttack):
    """Images that a model takes for a class, from independent starts."""

    name = "gmi"
    summary = "images of a class, from the model"
    model = "mlp3:128"
    heavy = True
    needs_steps = True

    def invert(
        self, exposed: Exposed, prior: Prior, label: int, count: int, steps: int, seed: int
    ) -> NDArray[np.float32]:
        """`count` images of class `label`, from independent starts."""
        source = torch.Generator().manual_seed(derive_seed(seed, "gmi", label))
        latent = torch.randn(count, LATENT, generator=source).requires_grad_(True)
        wanted = torch.full((count,), label)
        optimiser = torch.optim.SGD([latent], lr=2e-2, momentum=0.9, nesterov=True)
        for _ in range(steps):
            images = prior.images(latent)
            realism = prior.critic(images.reshape(count, -1)).mean()
            identity = functional.cross_entropy(exposed.module(images), wanted)
            optimiser.zero_grad()
            torch.autograd.backward([_IDENTITY_WEIGHT * identity - realism])
            torch.nn.utils.clip_grad_norm_([latent], 10.0)
            optimiser.step()
            with torch.no_grad():
                latent.clamp_(-3, 3)
        with torch.no_grad():
            found: NDArray[np.float32] = prior.images(latent).numpy()
        return found
