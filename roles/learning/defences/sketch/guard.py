"""CountSketch of layer inputs and weights, fresh in every round (DBCL).

A sketch S maps n numbers to s = floor(n / ratio): a random permutation deals the inputs of a layer evenly
into s buckets, each with a random sign, and a bucket holds the sum. A layer then computes (x S)(W S)^T
instead of x W^T, and its weights see x S only; the mean of S S^T over random sketches is the identity.

Since (x S)(W S)^T = x (W S S^T)^T, a sketched layer is the same layer with weights W S S^T, and autograd
through that product gives the gradient of the sketched weights mapped back by S^T, which is what an upload
carries. So a layer of any kind is sketched by replacing its weight, and the vector keeps its layout.

The sketch is public: it is drawn from the agreed seed, the round and the place of the layer, and every party
uses the same. A private one would show in the upload anyway, whose columns repeat bucket by bucket. The
biases are not sketched. Parties hold the unsketched model, as in the authors' own program: the sketch
covers what the upload says about inputs, not the model. Evaluation uses plain weights.

Implements specs/defences.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.defences.guard import Guard, Party, RoundWork
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.training.loop import Objective

Layer: TypeAlias = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True, eq=False)
class CountSketch:
    """S: input i goes to bucket[i] with sign[i]."""

    bucket: npt.NDArray[np.int64]
    sign: npt.NDArray[np.float32]
    buckets: int

    @classmethod
    def draw(cls, inputs: int, ratio: int, seed: int, round: int, place: int) -> CountSketch:
        """The public sketch of one layer in one round; bucket sizes differ by at most one."""
        random = generator(seed, "sketch", round, place)
        buckets = max(1, inputs // ratio)
        bucket = np.empty(inputs, dtype=np.int64)
        bucket[random.permutation(inputs)] = np.arange(inputs) % buckets
        sign = (2 * random.integers(0, 2, inputs) - 1).astype(np.float32)
        return cls(bucket, sign, buckets)

    def matrix(self) -> npt.NDArray[np.float32]:
        """S itself, inputs x buckets."""
        matrix = np.zeros((self.bucket.size, self.buckets), dtype=np.float32)
        matrix[np.arange(self.bucket.size), self.bucket] = self.sign
        return matrix

    def project(self, weight: torch.Tensor) -> torch.Tensor:
        """W S S^T, for a weight whose first axis lists outputs."""
        bucket = torch.from_numpy(self.bucket).to(weight.device)
        sign = torch.from_numpy(self.sign).to(weight.device)
        rows = weight.reshape(weight.shape[0], -1) * sign
        sums = rows.new_zeros(rows.shape[0], self.buckets).index_add(1, bucket, rows)
        return (sums.index_select(1, bucket) * sign).reshape(weight.shape)


class SketchGuard(Guard):
    def __init__(self, ratio: int) -> None:
        self._ratio = ratio
        self._seed = 0

    def attach(self, party: Party) -> None:
        self._seed = party.seed
        if not sketched_layers(party.network):
            raise LocalProtocolError(
                "defence sketch: the model has no linear or convolutional layer to sketch; use a model with one"
            )

    def prepare(
        self, module: nn.Module, objective: Objective, work: RoundWork
    ) -> tuple[nn.Module, Objective]:
        for place, layer in enumerate(sketched_layers(work.network)):
            inputs = layer.weight[0].numel()
            sketch = CountSketch.draw(inputs, self._ratio, self._seed, work.round, place)
            # The module was made for this round alone, so its layers may be rewired in place.
            layer.forward = partial(_forward(layer), layer, sketch)  # type: ignore[method-assign]  # see above
        return module, objective


def sketched_layers(network: nn.Module) -> list[Layer]:
    """The layers that are sketched, in the module's order; their index is the `place` of their sketch."""
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
    ]


def _forward(layer: Layer) -> Callable[..., torch.Tensor]:
    return _linear if isinstance(layer, nn.Linear) else _convolution


def _linear(layer: nn.Linear, sketch: CountSketch, inputs: torch.Tensor) -> torch.Tensor:
    return functional.linear(inputs, sketch.project(layer.weight), layer.bias)


def _convolution(layer: nn.Conv2d, sketch: CountSketch, inputs: torch.Tensor) -> torch.Tensor:
    outputs: torch.Tensor = layer._conv_forward(inputs, sketch.project(layer.weight), layer.bias)
    return outputs
