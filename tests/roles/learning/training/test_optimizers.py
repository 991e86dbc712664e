"""Our optimisers are those of torch, to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.training.optimizers import make_optimizer
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import to_vector


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        (TrainingOptions(), lambda p: torch.optim.SGD(p, lr=0.1, foreach=False)),
        (TrainingOptions(momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False)),
        (TrainingOptions(optimizer="adam"), lambda p: torch.optim.Adam(p, lr=0.1, foreach=False)),
    ],
)
def test_our_optimisers_are_torchs_own_to_the_bit(options: TrainingOptions, reference: Any) -> None:
    ours, theirs = (build_model("mlp3:8", (5,), 2, seed=3) for _ in range(2))
    step = make_optimizer(list(ours.parameters()), options, options.learning_rate)
    optimizer = reference(list(theirs.parameters()))
    for batch in torch.rand(6, 4, 5, generator=torch.Generator().manual_seed(1)):
        step(torch.autograd.grad(ours(batch).square().sum(), list(ours.parameters())))
        optimizer.zero_grad()
        theirs(batch).square().sum().backward()
        optimizer.step()
        assert to_vector(ours).tobytes() == to_vector(theirs).tobytes()
