"""A light generative adversarial network, trained on public classes: a prior over what images look like.

Wasserstein critic with gradient penalty; both networks are small and dense, which is enough for 8 x 8 to 32 x 32 images
and takes seconds on one core. Public classes are those that the private task does not contain: the attacker never
trains on what it wants to find.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from veilsum.roles.learning.seeds import derive_seed
from veilsum.roles.learning.task import Array

LATENT = 32
_WIDTH, _CRITIC_STEPS, _BATCH, _PENALTY = 128, 3, 64, 10.0


@dataclass(frozen=True, eq=False)
class Prior:
    """A trained generator (latent -> images from 0 to 1) and its critic."""

    generator: nn.Module
    critic: nn.Module
    shape: tuple[int, ...]

    def images(self, latent: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.generator(latent)
        return made.reshape(len(latent), *self.shape)

    def copy_of_generator(self) -> nn.Module:
        """The same generator again, free to be changed."""
        twin = _generator(int(np.prod(self.shape)))
        twin.load_state_dict(self.generator.state_dict())
        return twin


def train_prior(images: Array, steps: int, seed: int) -> Prior:
    """A prior from public images (count, channels, height, width)."""
    shape = tuple(images.shape[1:])
    real = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32)).reshape(len(images), -1)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "prior"))
        generator, critic = _generator(real.shape[1]), _critic(real.shape[1])
        betas = (0.5, 0.9)
        makes = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=betas)
        judges = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=betas)
        for _ in range(steps):
            for _ in range(_CRITIC_STEPS):
                batch = real[torch.randint(len(real), (_BATCH,))]
                fake = generator(torch.randn(_BATCH, LATENT)).detach()
                loss = critic(fake).mean() - critic(batch).mean() + _PENALTY * _penalty(critic, batch, fake)
                judges.zero_grad()
                torch.autograd.backward([loss])
                judges.step()
            makes.zero_grad()
            torch.autograd.backward([-critic(generator(torch.randn(_BATCH, LATENT))).mean()])
            makes.step()
    return Prior(generator.eval(), critic.eval(), shape)


def _penalty(critic: nn.Module, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """How far the slope of the critic is from one, between real and made images."""
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty: torch.Tensor = (slope.norm(dim=1) - 1).square().mean()
    return penalty


def _generator(pixels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(LATENT, _WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(_WIDTH, _WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(_WIDTH, pixels),
        nn.Sigmoid(),
    )


def _critic(pixels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(pixels, _WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(_WIDTH, _WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(_WIDTH, 1),
    )
