"""ResNet-20, -32 and -56 for small images: three stages of 16, 32 and 64 channels.

A stage that changes the shape has a 1 x 1 convolution on its shortcut, not a padded copy, so that every
branch is a traceable layer.
"""

from __future__ import annotations

import torch
from torch import nn

from veilsum.roles.learning.models.network import Network, Shape, initialise_he, require_divisible

_STAGES = ((16, 1), (32, 2), (64, 2))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = self.activation(self.branch(x) + self.shortcut(x))
        return joined


def resnet(depth: int, shape: Shape, outputs: int) -> Network:
    """A residual network of 6 n + 2 layers."""
    channels, height, width = require_divisible(f"resnet{depth}", shape, 4)
    layers: list[nn.Module] = [
        nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
    ]
    channels = 16
    for stage_width, stride in _STAGES:
        for block in range((depth - 2) // 6):
            layers.append(ResidualBlock(channels, stage_width, stride if block == 0 else 1))
            channels = stage_width
    layers += [nn.AvgPool2d((height // 4, width // 4)), nn.Flatten()]
    features = nn.Sequential(*layers)
    initialise_he(features)
    return Network(features, channels, outputs)
