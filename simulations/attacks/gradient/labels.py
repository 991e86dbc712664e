"""Labels from the last layer's bias gradient, which is the mean of softmax minus one-hot.

For one image the true class is the only negative entry. For a batch, entry c is the mean probability of c minus the
share of c among the labels; with the mean probability estimated on random inputs the shares follow, and labels are
given out one by one to the class that lacks most.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import torch

from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Victim

HEAD_BIAS = "head.bias"
_PROBES = 64


def head_bias_gradient(victim: Victim) -> torch.Tensor:
    gradient = victim.named(HEAD_BIAS)
    if gradient is None:
        raise AttackDoesNotFit(
            "labels are read off the gradient of the last layer's bias; this model has none"
        )
    return gradient


def recover_labels(victim: Victim, seed: int) -> torch.Tensor:
    """The labels of the batch, in no particular order."""
    gradient = head_bias_gradient(victim)
    batch = victim.shape[0]
    if batch == 1:
        return gradient.argmin().reshape(1)
    probes = torch.rand(_PROBES, *victim.shape[1:], generator=victim.random(seed, "label probes"))
    with torch.no_grad():
        mean = victim.module(probes.to(victim.device)).softmax(dim=1).mean(dim=0)
    owed = batch * (mean - gradient)
    labels = []
    for _ in range(batch):
        label = owed.argmax()
        labels.append(label)
        owed[label] -= 1
    return torch.stack(labels).sort().values
