"""Where a client's terms are written: one flat vector each, with views for the parameters inside.

Implements specs/perturbation.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from veilsum.protocol.errors import EncodingError
from veilsum.protocol.perturbation.algebra import layout
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan


class TermBuffers:
    """Every byte is written exactly once, so nothing is copied when the terms are uploaded."""

    def __init__(self, plan: PerturbationPlan, public: PublicPerturbation, like: Tensor) -> None:
        self._plan = plan
        sizes = layout.term_sizes(plan, public)
        self._flat = {name: like.new_empty(size) for name, size in sizes.items()}

    def body(self, name: str) -> list[Tensor]:
        """Views for the parameters of the body, in order."""
        head = (f"{self._plan.head.module}.weight", f"{self._plan.head.module}.bias")
        flat, views, position = self._flat[name], [], 0
        for parameter in self._plan.parameters:
            if parameter.name not in head:
                views.append(flat[position : position + parameter.size].view(parameter.shape))
            elif name != layout.GRADIENT:
                continue
            position += parameter.size
        return views

    def write_head(self, error: Tensor, features: Tensor) -> None:
        """The last layer's own gradient, inside the gradient term."""
        weight, bias = self._plan.head_slices()
        flat = self._flat[layout.GRADIENT]
        torch.mm(error.T, features, out=flat[weight].view(self._plan.head.outputs, self._plan.head.features))
        if bias is not None:
            torch.sum(error, dim=0, out=flat[bias])

    def write_end(self, name: str, scalar: Tensor) -> None:
        self._flat[name][-1] = scalar

    def write(self, name: str, pieces: Sequence[Tensor]) -> None:
        torch.cat([piece.reshape(-1) for piece in pieces], out=self._flat[name])

    def vectors(self) -> dict[str, layout.Vector]:
        return {name: flat.cpu().numpy() for name, flat in self._flat.items()}


def load_parameters(plan: PerturbationPlan, module: nn.Module, flat: NDArray[np.floating[Any]]) -> None:
    """Copy a flat vector into a module, in the module's own precision."""
    if flat.shape != (plan.size,):
        raise EncodingError(f"the model has {plan.size} parameters, the vector {flat.shape}")
    with torch.no_grad():
        for parameter, place in zip(module.parameters(), plan.slices.values(), strict=True):
            parameter.copy_(torch.as_tensor(flat[place]).reshape(parameter.shape))
