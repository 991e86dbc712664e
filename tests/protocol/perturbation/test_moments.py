"""Running statistics of batch normalisation, pooled over clients."""

from __future__ import annotations

import copy
import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.layout import weighted_mean
from veilsum.protocol.perturbation.algebra.moments import pooled_statistics
from veilsum.protocol.perturbation.algebra.packing import load_parameters
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.algebra.terms import client_terms
from veilsum.protocol.perturbation.draws import UniformStream
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.trace import trace


def entropy(n: int) -> bytes:
    return hashlib.shake_256(b"moments").digest(n)


def network(momentum: float | None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.BatchNorm2d(3, momentum=momentum),
            nn.ReLU(),
            nn.Conv2d(3, 4, 2),
            nn.BatchNorm2d(4, momentum=momentum),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16, 2),
        ).double()


def pooled(model: nn.Module, batches: list[torch.Tensor]) -> dict[str, np.ndarray]:
    plan = trace(model, torch.zeros(1, 1, 5, 5))
    key = new_key(plan, PerturbationSettings(precision="float64"), UniformStream(entropy).octets)
    client = copy.deepcopy(model)
    load_parameters(plan, client, key.perturb(plan.flatten(model.state_dict())))
    before = copy.deepcopy(client.state_dict())
    uploads = [client_terms(plan, client, key.public, x, torch.zeros(len(x), 2).double()) for x in batches]
    assert all(torch.equal(value, before[name]) for name, value in client.state_dict().items())
    found = recover(key, weighted_mean(uploads, [float(len(x)) for x in batches]))
    assert found.moments is not None
    return pooled_statistics(plan, found.moments, model.state_dict())


@pytest.mark.parametrize("momentum", [0.1, None], ids=str)
def test_one_client_gives_the_statistics_that_torch_would_keep(momentum: float | None) -> None:
    model = network(momentum)
    batch = torch.randn(6, 1, 5, 5, generator=torch.Generator().manual_seed(1)).double()
    for _ in range(2):
        found = pooled(model, [batch])
        model.train()(batch)
        for name, value in found.items():
            assert np.allclose(value, model.state_dict()[name].numpy(), rtol=1e-10), name


def test_several_clients_give_the_moments_of_all_their_samples() -> None:
    """The spread between clients counts: averaging variances would miss it."""
    model = network(momentum=1.0)
    generator = torch.Generator().manual_seed(1)
    batches = [
        torch.randn(n, 1, 5, 5, generator=generator).double() + shift for n, shift in ((4, 0.0), (8, 3.0))
    ]
    found = pooled(model, batches)
    first = model[0](torch.cat(batches)).detach()
    assert np.allclose(found["1.running_mean"], first.mean((0, 2, 3)).numpy())
    count = (4 * 4 + 8 * 8) / 12 * 9
    expected = first.var((0, 2, 3), unbiased=False).numpy() * count / (count - 1)
    assert np.allclose(found["1.running_var"], expected)
    averaged = sum(len(x) / 12 * model[0](x).detach().var((0, 2, 3), unbiased=False).numpy() for x in batches)
    assert (expected > 1.05 * averaged).all()


def test_a_batch_too_small_to_normalise_is_refused_and_leaves_the_statistics_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    plan = trace(model, torch.zeros(1, 3))
    key = new_key(plan, PerturbationSettings(), UniformStream(entropy).octets)
    before = copy.deepcopy(model.state_dict())
    with refusal(LocalProtocolError, "batch", 1):
        client_terms(plan, model, key.public, torch.ones(1, 3), torch.zeros(1, 2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
