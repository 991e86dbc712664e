"""From cotangents at the features to gradients of the body, written where they will be uploaded from.

Two ways compute the same. Any body can go through autograd, one reverse pass per cotangent. A plain chain of
linear layers and ReLU is common and small enough for autograd's bookkeeping to dominate, so it is done by
hand: all cotangents go back together, one matrix product per layer, and weight gradients are written
straight into the flat vectors. Cotangents that are multiples, sample by sample, of one common direction go
back as that direction, once: samples do not mix in such a chain, so the multiples can be applied on the way.

Implements specs/perturbation.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

Destination = Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Cotangent:
    """`direction` times, if given, one weight per sample."""

    direction: Tensor
    weights: Tensor | None = None

    def matrix(self) -> Tensor:
        return self.direction if self.weights is None else self.weights[:, None] * self.direction


class ReversibleBody(Protocol):
    """A forward pass through everything before the last layer, ready to be reversed."""

    features: Tensor

    def pull_back(self, cotangents: Sequence[Cotangent], destinations: Sequence[Destination]) -> None:
        """Write, for each cotangent, the gradient of every body parameter into its destination; once only."""


class AutogradBody:
    def __init__(self, features: Tensor, parameters: Sequence[nn.Parameter]) -> None:
        self.features = features.detach()
        self._root = features
        self._parameters = parameters

    def pull_back(self, cotangents: Sequence[Cotangent], destinations: Sequence[Destination]) -> None:
        if not self._parameters:
            return
        for number, (cotangent, destination) in enumerate(
            zip(cotangents, destinations, strict=True), start=1
        ):
            gradients = torch.autograd.grad(
                self._root,
                self._parameters,
                cotangent.matrix(),
                retain_graph=number < len(cotangents),
                materialize_grads=True,
            )
            for gradient, place in zip(gradients, destination, strict=True):
                place.copy_(gradient)


class DenseChainBody:
    """Linear, ReLU, Linear, ReLU, ... on flattened inputs."""

    def __init__(self, layers: Sequence[nn.Linear], inputs: Tensor) -> None:
        self._weights = [layer.weight.detach() for layer in layers]
        self._activations = [inputs.detach().reshape(inputs.shape[0], -1)]
        for layer in layers:
            self._activations.append(
                torch.relu_(nn.functional.linear(self._activations[-1], *detached(layer)))
            )
        self.features = self._activations[-1]
        self._has_bias = [layer.bias is not None for layer in layers]

    def pull_back(self, cotangents: Sequence[Cotangent], destinations: Sequence[Destination]) -> None:
        directions = list({id(c.direction): c.direction for c in cotangents}.values())
        index = {id(direction): position for position, direction in enumerate(directions)}
        samples = self.features.shape[0]
        backwards = torch.stack([direction.expand_as(self.features) for direction in directions])
        remaining = [list(destination) for destination in destinations]
        for layer in reversed(range(len(self._weights))):
            backwards = backwards * (self._activations[layer + 1] > 0)
            for cotangent, places in zip(cotangents, remaining, strict=True):
                delta = backwards[index[id(cotangent.direction)]]
                if cotangent.weights is not None:
                    delta = cotangent.weights[:, None] * delta
                if self._has_bias[layer]:
                    torch.sum(delta, dim=0, out=places.pop())
                torch.mm(delta.T, self._activations[layer], out=places.pop())
            if layer:
                flat = backwards.reshape(len(directions) * samples, -1) @ self._weights[layer]
                backwards = flat.reshape(len(directions), samples, -1)


def detached(layer: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
