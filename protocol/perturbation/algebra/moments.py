"""Batch normalisation across clients.

The factor in front of a normalisation is one, so the statistics clients see are true. Running variances of
several clients cannot be averaged: that would forget how far their means lie apart. Clients upload the mean,
the mean square and the number of values behind them; those average correctly, and the server forms the
running statistics from them. For one client the result is what torch computes by itself.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan

RunningNormModule = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


class MomentRecorder:
    """Reads the batch statistics that the forward pass computes anyway."""

    def __init__(self, modules: list[RunningNormModule]) -> None:
        self._modules = modules
        self._counts: dict[int, int] = {}

    def note_count(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._counts[id(module)] = inputs[0].numel() // inputs[0].shape[1]

    def read(self) -> Tensor:
        """Mean, mean square and count of every normalisation, one after the other."""
        pieces: list[Tensor] = []
        for module in self._modules:
            mean, variance, count = module.running_mean, module.running_var, self._counts[id(module)]
            assert mean is not None and variance is not None
            pieces += [mean, variance * ((count - 1) / count) + mean**2, mean.new_tensor([float(count)])]
        return torch.cat(pieces)


@contextmanager
def recorded_moments(plan: PerturbationPlan, module: nn.Module) -> Iterator[MomentRecorder]:
    """Run one forward pass inside; the module's own running statistics are left as they were.

    With momentum one, running statistics are those of the batch, at no extra cost.
    """
    norms: list[RunningNormModule] = [_running_norm(module, norm.module) for norm in plan.norms]
    recorder = MomentRecorder(norms)
    # The buffers are swapped, not overwritten: the backward passes still hold those of the forward pass.
    saved = [(norm, norm.momentum, dict(norm.named_buffers())) for norm in norms]
    hooks = [norm.register_forward_pre_hook(recorder.note_count) for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 1.0
            for name, value in norm.named_buffers():
                setattr(norm, name, value.clone())
        yield recorder
    finally:
        for hook in hooks:
            hook.remove()
        for norm, momentum, buffers in saved:
            norm.momentum = momentum
            for name, value in buffers.items():
                setattr(norm, name, value)


def pooled_statistics(
    plan: PerturbationPlan, moments: Reals, state: Mapping[str, ArrayLike]
) -> dict[str, Reals]:
    """The new running buffers, by name, from pooled moments and the current buffers in `state`."""
    updated: dict[str, Reals] = {}
    position = 0
    for norm in plan.norms:
        piece = moments[position : position + 2 * norm.channels + 1]
        position += piece.size
        mean, mean_square, count = piece[: norm.channels], piece[norm.channels : -1], float(piece[-1])
        variance = np.maximum(mean_square - mean**2, 0.0) * (count / (count - 1) if count > 1 else 1.0)
        batches = np.asarray(state[f"{norm.module}.num_batches_tracked"], dtype=np.float64) + 1.0
        momentum = 1.0 / float(batches) if norm.momentum is None else norm.momentum
        for name, batch_value in (("running_mean", mean), ("running_var", variance)):
            old = np.asarray(state[f"{norm.module}.{name}"], dtype=np.float64)
            updated[f"{norm.module}.{name}"] = (1.0 - momentum) * old + momentum * batch_value
        updated[f"{norm.module}.num_batches_tracked"] = batches
    return updated


def _running_norm(module: nn.Module, name: str) -> RunningNormModule:
    norm = module.get_submodule(name)
    if not isinstance(norm, RunningNormModule):
        raise LocalProtocolError(f"{name}: expected a batch normalisation, found {type(norm).__name__}")
    if not norm.training:
        raise LocalProtocolError(f"{name}: batch statistics need the model in training mode; call train()")
    return norm
