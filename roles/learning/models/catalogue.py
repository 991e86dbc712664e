"""Models by the name a user writes.

Implements specs/tasks.md, section 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.learning.models.dense import densenet
from veilsum.roles.learning.models.mlp import DEFAULT_WIDTH, mlp
from veilsum.roles.learning.models.network import Network, Shape
from veilsum.roles.learning.models.residual import resnet
from veilsum.roles.learning.models.small import dlnet, lenet5
from veilsum.roles.learning.models.vgg import alexnet, vgg16, vgg16_gn
from veilsum.roles.learning.seeds import derive_seed

MODELS: dict[str, Callable[[Shape, int], Network]] = {
    "lenet5": lenet5,
    "alexnet": alexnet,
    "vgg16": vgg16,
    "vgg16-gn": vgg16_gn,
    "resnet20": partial(resnet, 20),
    "resnet32": partial(resnet, 32),
    "resnet56": partial(resnet, 56),
    "densenet": densenet,
    "dlnet": partial(dlnet, nn.Sigmoid),
    "dlnet-tanh": partial(dlnet, nn.Tanh),
    "dlnet-relu": partial(dlnet, nn.ReLU),
}
MODEL_FORMS = f"mlpLAYERS or mlpLAYERS:WIDTH (as mlp3, mlp5:512), {', '.join(MODELS)}"
_MLP = re.compile(r"mlp([1-9]\d?)(?::([1-9]\d{0,4}))?")


def build_model(name: str, input_shape: Shape, outputs: int, seed: int | None = None) -> Network:
    """A new network; the same seed gives the same parameters, and torch's generator is left alone.

    Without a seed the parameters come from torch's generator as it stands.
    """
    builder = _builder(name)
    if outputs < 1:
        raise LocalProtocolError(f"model {name} needs at least one output, not {outputs}")
    if seed is None:
        return builder(input_shape, outputs)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "model"))
        return builder(input_shape, outputs)


def _builder(name: str) -> Callable[[Shape, int], Network]:
    if match := _MLP.fullmatch(name):
        return partial(mlp, int(match[1]), int(match[2] or DEFAULT_WIDTH))
    if name not in MODELS:
        raise ParameterError([f"unknown model {name!r}{did_you_mean(name, MODELS)}; allowed: {MODEL_FORMS}"])
    return MODELS[name]
