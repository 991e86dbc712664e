"""Small convolutional networks: LeNet-5 and DLNet."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from veilsum.roles.learning.models.network import Network, Shape, initialise_he, require_image

_DLNET_CHANNELS = 12
_DLNET_INIT = 0.3


def lenet5(shape: Shape, outputs: int) -> Network:
    """LeNet-5 with ReLU and max pooling; 28 x 28 images are padded to 32 x 32 by the first layer."""
    channels, height, width = require_image("lenet5", shape, 12)
    padding = 2 if min(height, width) < 32 else 0
    height, width = ((side + 2 * padding - 4) // 2 for side in (height, width))
    height, width = ((side - 4) // 2 for side in (height, width))
    features = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    initialise_he(features)
    return Network(features, 84, outputs)


def dlnet(activation: Callable[[], nn.Module], shape: Shape, outputs: int) -> Network:
    """Four 5 x 5 convolutions: the target of gradient inversion in the SPN paper (its Table 6).

    All parameters start uniform in [-0.3, 0.3]. The published activation is the sigmoid, whose second
    derivative the attack needs; it is not positively homogeneous, so only the ReLU variant can be
    perturbed.
    """
    channels, height, width = require_image("dlnet", shape, 4)
    layers: list[nn.Module] = []
    for stride in (2, 2, 1, 1):
        layers += [nn.Conv2d(channels, _DLNET_CHANNELS, 5, stride=stride, padding=2), activation()]
        channels, height, width = _DLNET_CHANNELS, -(-height // stride), -(-width // stride)
    network = Network(nn.Sequential(*layers, nn.Flatten()), channels * height * width, outputs)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -_DLNET_INIT, _DLNET_INIT)
    network.head_reach = _DLNET_INIT
    return network
