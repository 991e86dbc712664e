"""Estimate the secret factors themselves from a law that gradient descent keeps.

For every hidden ReLU unit, gradient flow conserves the squared norm of what comes in, bias included, minus the
squared norm of what goes out. The constant is known from how layers are initialised, or from the first model, which
follows from an agreed seed. Scaling a unit by f multiplies what comes in by f and divides what goes out, so each unit's
law is an equation in its f and those of its neighbours: as many equations as unknowns, solved layer by layer until
nothing moves.

Fresh keys do not help: each round is solved by itself, and rounds can be averaged.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from torch import nn

from veilsum.roles.views.view import View
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.perturbation.kinds import PerturbationAttack
from veilsum.simulations.attacks.perturbation.line import line_offset
from veilsum.simulations.attacks.perturbation.predictions import PerturbedModel, Reals


class HiddenFactors(PerturbationAttack):
    """The factor of every hidden unit of a dense network, as well as balancedness tells it."""

    name = "noise-factors"
    summary = "secret factors from balancedness"

    def estimate(self, view: View) -> list[Reals]:
        """One array per hidden layer."""
        perturbed = PerturbedModel(view)
        layers = dense_layers(perturbed.module)
        if perturbed.public.has_offset:
            freed = layers[-1].weight - line_offset(perturbed)[:, None] * perturbed.public.feature_weight
            layers[-1] = Layer(freed, layers[-1].bias)
        first = dense_layers(Exposed(view.facts, view.initial_model).module)
        return estimate_factors(layers, imbalance_of(first))


@dataclass(frozen=True, eq=False)
class Layer:
    """A dense layer, as the client received it."""

    weight: Reals
    bias: Reals


def dense_layers(module: nn.Module) -> list[Layer]:
    """The layers of a chain of dense layers."""
    linear = [one for one in module.modules() if isinstance(one, nn.Linear)]
    fits = all(here.out_features == after.in_features for here, after in pairwise(linear))
    if not fits or any(isinstance(one, nn.Conv2d) for one in module.modules()):
        raise AttackDoesNotFit(
            "balancedness is written for chains of dense layers: use a model such as mlp2:64"
        )
    return [Layer(one.weight.detach().double().numpy(), one.bias.detach().double().numpy()) for one in linear]


def imbalance_of(layers: Sequence[Layer]) -> list[Reals]:
    """What every hidden unit starts with, from the layers of a first model that is known."""
    return [
        (here.weight**2).sum(axis=1) + here.bias**2 - (after.weight**2).sum(axis=0)
        for here, after in pairwise(layers)
    ]


def estimate_factors(
    layers: Sequence[Layer], imbalance: Sequence[float | Reals], sweeps: int = 200
) -> list[Reals]:
    """The factor of every hidden unit, from perturbed layers whose head has been freed of its offset."""
    squares = [np.ones(layer.weight.shape[0]) for layer in layers]
    for _ in range(sweeps):
        for position, constant in enumerate(imbalance):
            here, after = layers[position], layers[position + 1]
            below = squares[position - 1] if position else np.ones(here.weight.shape[1])
            incoming = here.weight**2 @ below + here.bias**2
            outgoing = (after.weight**2 / squares[position + 1][:, None]).sum(axis=0)
            # incoming / x - outgoing * x = constant, for x = f squared
            squares[position] = (np.sqrt(constant**2 + 4 * incoming * outgoing) - constant) / (2 * outgoing)
    return [np.sqrt(square) for square in squares[:-1]]
