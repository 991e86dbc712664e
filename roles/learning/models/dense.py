"""A small DenseNet: three blocks of three layers, each layer adding 12 channels to all that came before.

Each layer is convolution, batch norm, ReLU, in this order, and not norm first as published: a norm directly
on the concatenation would tie the perturbation factors of all earlier layers to 1 and leave them
as they are.
"""

from __future__ import annotations

import torch
from torch import nn

from veilsum.roles.learning.models.network import Network, Shape, initialise_he, require_divisible

_GROWTH = 12
_LAYERS = 3
_BLOCKS = 3


class DenseLayer(nn.Module):
    """Concatenates its input with the new channels computed from it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = _unit(channels, _GROWTH, kernel=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.branch(x)], dim=1)


def densenet(shape: Shape, outputs: int) -> Network:
    """Between blocks a 1 x 1 convolution halves the channels and a pool halves the image."""
    channels, height, width = require_divisible("densenet", shape, 4)
    layers: list[nn.Module] = [_unit(channels, 2 * _GROWTH, kernel=3)]
    channels = 2 * _GROWTH
    for block in range(_BLOCKS):
        for _ in range(_LAYERS):
            layers.append(DenseLayer(channels))
            channels += _GROWTH
        if block < _BLOCKS - 1:
            layers += [_unit(channels, channels // 2, kernel=1), nn.AvgPool2d(2)]
            channels //= 2
    layers += [nn.AvgPool2d((height // 4, width // 4)), nn.Flatten()]
    features = nn.Sequential(*layers)
    initialise_he(features)
    return Network(features, channels, outputs)


def _unit(channels: int, width: int, kernel: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, width, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU())
