"""The two losses, exactly as the recovered gradient means them: a mean over samples.

Squared error is half the squared norm of the error of a sample, not divided by the number of outputs.

Implements specs/perturbation.md, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.perturbation.settings import Loss


def mean_loss(outputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
    if loss == "mse":
        return 0.5 * (outputs - targets).square().sum() / outputs.shape[0]
    return torch.nn.functional.cross_entropy(outputs, targets)


def loss_and_error(outputs: Tensor, targets: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """The loss and its derivative with respect to the outputs."""
    samples = outputs.shape[0]
    if loss == "mse":
        difference = outputs - target_matrix(targets, outputs)
        return 0.5 * difference.square().sum() / samples, difference * (1.0 / samples)
    labels = target_matrix(targets, outputs, sums_to_one=True)
    log_softmax = torch.log_softmax(outputs, dim=1)
    return -(labels * log_softmax).sum() / samples, (log_softmax.exp() - labels) / samples


def target_matrix(targets: Tensor, outputs: Tensor, *, sums_to_one: bool = False) -> Tensor:
    """Targets with one row per sample; class numbers become unit vectors."""
    samples, classes = outputs.shape
    if targets.dim() == 1 and not targets.is_floating_point():
        if targets.shape[0] != samples or not 0 <= int(targets.min()) <= int(targets.max()) < classes:
            raise LocalProtocolError(f"labels must be {samples} class numbers below {classes}")
        return torch.nn.functional.one_hot(targets, classes).to(outputs.dtype)
    if targets.shape != outputs.shape:
        raise LocalProtocolError(f"targets have shape {tuple(targets.shape)}, not {tuple(outputs.shape)}")
    matrix = targets.to(outputs.dtype)
    if sums_to_one and not torch.allclose(matrix.sum(dim=1), matrix.new_ones(samples), atol=1e-5):
        raise LocalProtocolError("cross entropy needs targets that add up to one for every sample")
    return matrix
