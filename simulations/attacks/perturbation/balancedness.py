"""Estimate the secret factors themselves from a law that gradient descent keeps.

For every hidden ReLU unit, gradient flow conserves the squared norm of what comes in, bias included, minus the
squared norm of what goes out. The constant is known from how layers are initialised, or from the first model, which
follows from an agreed seed. Scaling a unit by f
multiplies what comes in by f and divides what goes out, so each unit's law is an equation in its f and those of
its neighbours: as many equations as unknowns, solved layer by layer until nothing moves.

Fresh keys do not help: each round is solved by itself, and rounds can be averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Layer:
    """A dense layer, as the client received it."""

    weight: Reals
    bias: Reals


def default_imbalance(layers: Sequence[Layer]) -> list[float]:
    """What every hidden unit of a layer starts with, for weights and biases uniform in +-1/sqrt(fan in)."""
    constants = []
    for here, after in pairwise(layers):
        incoming = (here.weight.shape[1] + 1) / (3 * here.weight.shape[1])
        outgoing = after.weight.shape[0] / (3 * after.weight.shape[1])
        constants.append(incoming - outgoing)
    return constants


def imbalance_of(layers: Sequence[Layer]) -> list[Reals]:
    """The same for every unit by itself, from the layers of a first model that is known."""
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
