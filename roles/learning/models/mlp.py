"""Fully connected networks: `mlp3` has three linear layers, 64 units wide; `mlp5:512` has five, 512 wide."""

from __future__ import annotations

from torch import nn

from veilsum.roles.learning.models.network import Network, Shape, flat_size, initialise_he

DEFAULT_WIDTH = 64


def mlp(layers: int, width: int, shape: Shape, outputs: int) -> Network:
    """`layers` linear layers with ReLU between them, on the flattened input."""
    features: list[nn.Module] = [nn.Flatten()]
    size = flat_size(shape)
    for _ in range(layers - 1):
        features += [nn.Linear(size, width), nn.ReLU()]
        size = width
    body = nn.Sequential(*features)
    initialise_he(body)
    return Network(body, size, outputs)
