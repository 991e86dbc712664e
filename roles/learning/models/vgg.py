"""AlexNet and VGG-16 for 32 x 32 images.

`alexnet` and `vgg16-gn` are the SPN paper's (its Tables 4 and 5). Table 5 is inconsistent: its last pooling
leaves 512 x 4 x 4 = 8192 features, but it prints 4096. Its output sizes are followed here: the pools after
the third and fourth group of convolutions, which leave 8 x 8 as it is, are left out. `vgg16` is the plain
network with five pools.
"""

from __future__ import annotations

from torch import nn

from veilsum.roles.learning.models.network import Network, Shape, initialise_he, require_divisible

_GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_NORM_GROUPS = 32


def alexnet(shape: Shape, outputs: int) -> Network:
    channels, height, width = require_divisible("alexnet", shape, 8)
    features = nn.Sequential(
        nn.Conv2d(channels, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256 * (height // 8) * (width // 8), 256),
        nn.ReLU(),
    )
    initialise_he(features)
    return Network(features, 256, outputs)


def vgg16(shape: Shape, outputs: int) -> Network:
    channels, height, width = require_divisible("vgg16", shape, 32)
    layers = _convolutions(channels, pooled=(0, 1, 2, 3, 4), norm=False)
    layers += [nn.Flatten(), nn.Linear(512 * (height // 32) * (width // 32), 512), nn.ReLU()]
    layers += [nn.Linear(512, 512), nn.ReLU()]
    features = nn.Sequential(*layers)
    initialise_he(features)
    return Network(features, 512, outputs)


def vgg16_gn(shape: Shape, outputs: int) -> Network:
    channels, height, width = require_divisible("vgg16-gn", shape, 8)
    layers = _convolutions(channels, pooled=(0, 1, 4), norm=True)
    layers += [nn.Flatten(), nn.Linear(512 * (height // 8) * (width // 8), 256), nn.ReLU()]
    features = nn.Sequential(*layers)
    initialise_he(features)
    return Network(features, 256, outputs)


def _convolutions(channels: int, pooled: tuple[int, ...], norm: bool) -> list[nn.Module]:
    """The thirteen convolutions, with a pool after each group listed in `pooled`."""
    layers: list[nn.Module] = []
    for group, (width, repeats) in enumerate(_GROUPS):
        for _ in range(repeats):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            if norm:
                layers.append(nn.GroupNorm(_NORM_GROUPS, width))
            layers.append(nn.ReLU())
            channels = width
        if group in pooled:
            layers.append(nn.MaxPool2d(2))
    return layers
