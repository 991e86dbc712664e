"""The one form all networks share: features, then a linear head.

A common form lets a defence put a second head on the features, and lets the tracer of the perturbation
schemes find the last layer. For that tracer the networks contain no control flow on values, no in-place
operation, no functional softmax, and no adaptive pooling (which has no deterministic backward pass on
CUDA): pooling sizes are computed from the input shape when the network is built.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import nn

from veilsum.protocol.errors import LocalProtocolError

Shape: TypeAlias = tuple[int, ...]


class Network(nn.Module):
    """`head(features(x))`; the head gives logits or regression values.

    `head_reach` is set where the head does not start in torch's usual range: its parameters then are uniform in
    [-head_reach, head_reach], and a second head on the same features should be too.
    """

    head_reach: float | None = None

    def __init__(self, features: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.features = features
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.features(x))
        return outputs


def require_image(name: str, shape: Shape, smallest: int) -> tuple[int, int, int]:
    """Channels, height and width of the input, or a refusal that names the model."""
    if len(shape) != 3:
        raise LocalProtocolError(
            f"model {name} needs images (channels, height, width), not inputs of shape {shape}"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise LocalProtocolError(
            f"model {name} needs images of at least {smallest} x {smallest}, not {height} x {width}"
        )
    return channels, height, width


def require_divisible(name: str, shape: Shape, factor: int) -> tuple[int, int, int]:
    """The same for networks that halve the image several times and would lose a border otherwise."""
    channels, height, width = require_image(name, shape, factor)
    if height % factor or width % factor:
        raise LocalProtocolError(
            f"model {name} needs image sides that are multiples of {factor}, not {height} x {width}"
        )
    return channels, height, width


def initialise_he(module: nn.Module) -> None:
    """He initialisation of convolutions and linear layers; deep ReLU networks hardly train without it."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def flat_size(shape: Shape) -> int:
    return math.prod(shape)
