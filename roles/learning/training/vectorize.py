"""A torch module as one flat float32 vector, and back.

The vector lists every parameter, then every floating buffer (such as the running statistics of a batch
norm), each in the module's own order. Integer buffers such as a batch counter are not averaged: they stay
where they are.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.contract import FloatVector, require_float_vector


@dataclass(frozen=True)
class Entry:
    """One tensor's place in the vector."""

    name: str
    kind: Literal["parameter", "buffer"]
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.size


def layout(module: nn.Module) -> tuple[Entry, ...]:
    """The table of names, kinds, shapes and places."""
    entries: list[Entry] = []
    parameters = dict(module.named_parameters())
    for name, tensor in _tensors(module).items():
        if tensor.dtype != torch.float32:
            raise LocalProtocolError(f"{name} is {tensor.dtype}; only float32 models can be averaged")
        start = entries[-1].stop if entries else 0
        entries.append(
            Entry(name, "parameter" if name in parameters else "buffer", tuple(tensor.shape), start)
        )
    if not any(entry.size for entry in entries):
        raise LocalProtocolError("the model has no parameters")
    return tuple(entries)


def to_vector(module: nn.Module) -> FloatVector:
    """A copy of all tensors of the layout, end to end."""
    return concatenate(list(_tensors(module).values()))


def concatenate(tensors: list[torch.Tensor]) -> FloatVector:
    """Tensors end to end, on the CPU, as numpy."""
    with torch.no_grad():
        flat = torch.cat([tensor.detach().reshape(-1).to("cpu", torch.float32) for tensor in tensors])
    vector: FloatVector = flat.numpy()
    return vector


def load_vector(module: nn.Module, vector: FloatVector) -> None:
    """Write the vector into the module's tensors; a vector of another length changes nothing."""
    require_float_vector(vector, "model")
    entries = layout(module)
    if vector.size != entries[-1].stop:
        raise LocalProtocolError(f"the vector has {vector.size} values, the model {entries[-1].stop}")
    source = torch.from_numpy(np.array(vector))
    with torch.no_grad():
        for entry, tensor in zip(entries, _tensors(module).values(), strict=True):
            tensor.copy_(source[entry.start : entry.stop].reshape(entry.shape))


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = dict(module.named_parameters())
    tensors.update((name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point())
    return tensors
