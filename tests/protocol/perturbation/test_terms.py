"""Uploads: their table, what is refused in them, and what never exists on a client."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.perturbation.algebra.backward import AutogradBody, DenseChainBody
from veilsum.protocol.perturbation.algebra.exchange import answer, conclude
from veilsum.protocol.perturbation.algebra.key import PerturbationKey, new_key
from veilsum.protocol.perturbation.algebra.layout import (
    Terms,
    is_finite,
    require_shapes,
    term_sizes,
    weighted_mean,
)
from veilsum.protocol.perturbation.algebra.packing import load_parameters
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.algebra.terms import (
    client_terms,
    cross_entropy_terms,
    exchange_request,
    run_forward,
)
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.roles.process.entropy import SeededEntropy


@pytest.fixture(scope="module")
def plan() -> PerturbationPlan:
    model = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 4))
    return trace(model, torch.zeros(1, 3))


@pytest.fixture
def key(plan: PerturbationPlan) -> PerturbationKey:
    return new_key(plan, PerturbationSettings(groups=2), SeededEntropy(1))


@pytest.fixture
def terms(plan: PerturbationPlan, key: PerturbationKey) -> Terms:
    return client_terms(plan, plan.model, key.public, torch.ones(2, 3), torch.tensor([1, 3]))


BODY = 3 * 7 + 7 + 7 * 5 + 5
WHOLE = BODY + 5 * 4 + 4


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"mode": "scale"}, {"gradient": WHOLE + 1}),
        (
            {"groups": 2},
            {
                "gradient": WHOLE + 1,
                "sigma.0": BODY + 1,
                "sigma.1": BODY + 1,
                "beta": BODY + 1,
                "head": 5 + 1,
            },
        ),
        (
            {"loss": "ce"},
            {"gradient": WHOLE + 1, "sigma.0": BODY + 1, "beta.0": BODY, "psi.0": BODY, "head": 4 * 6},
        ),
        (
            {"loss": "ce", "exchange": "printed"},
            {"gradient": WHOLE + 1, "sigma.0": BODY + 1, "beta.0": BODY, "psi.0": BODY, "head": 4 * 6 + 4},
        ),
    ],
    ids=str,
)
def test_the_table_of_terms_is_the_stated_one(plan: PerturbationPlan, options, sizes: dict[str, int]) -> None:
    """Squared error has m + 2 terms, cross entropy 3m + 1, both with one short term for the head."""
    key = new_key(plan, PerturbationSettings(**options), SeededEntropy(1))
    assert term_sizes(plan, key.public) == sizes


def test_normalisations_add_mean_mean_square_and_count() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    plan = trace(model, torch.zeros(1, 3))
    key = new_key(plan, PerturbationSettings(mode="scale"), SeededEntropy(1))
    assert term_sizes(plan, key.public)["moments"] == 13


def test_an_honest_upload_is_accepted(plan: PerturbationPlan, key: PerturbationKey, terms: Terms) -> None:
    key.public.require_used(terms.key_id, terms.public_digest)
    require_shapes(term_sizes(plan, key.public), terms.vectors)
    assert all(is_finite(vector) for vector in terms.vectors.values())


def altered(terms: Terms, name: str, vector: np.ndarray) -> Terms:
    return replace(terms, vectors={**terms.vectors, name: vector})


@pytest.mark.parametrize(
    ("spoil", "reason", "words"),
    [
        (lambda t: replace(t, key_id=bytes(16)), AbortReason.WRONG_ROUND, "stale key"),
        (lambda t: replace(t, public_digest=bytes(32)), AbortReason.WRONG_CONFIG, "another partition"),
        (lambda t: altered(t, "beta", t.vectors["beta"][:-1]), AbortReason.BAD_VECTOR, "term beta"),
        (lambda t: altered(t, "beta", t.vectors["beta"][None]), AbortReason.BAD_VECTOR, "term beta"),
        (lambda t: altered(t, "beta", t.vectors["beta"].astype(int)), AbortReason.BAD_VECTOR, "int64"),
        (lambda t: altered(t, "extra", np.zeros(3)), AbortReason.BAD_VECTOR, "extra"),
        (
            lambda t: replace(t, vectors=dict(list(t.vectors.items())[1:])),
            AbortReason.BAD_VECTOR,
            "terms are",
        ),
        (
            lambda t: altered(t, "sigma.1", t.vectors["sigma.1"] * np.nan),
            AbortReason.BAD_VECTOR,
            "sigma.1 finite",
        ),
        (
            lambda t: altered(t, "head", t.vectors["head"] + np.inf),
            AbortReason.BAD_VECTOR,
            "head finite",
        ),
    ],
    ids=["stale", "partition", "short", "matrix", "integers", "unknown", "missing", "nan", "infinite"],
)
def test_terms_of_another_key_or_shape_or_without_end_are_refused(key, terms, spoil, reason, words) -> None:
    spoilt = spoil(terms)
    with pytest.raises(Rejection) as caught:
        key.public.require_used(spoilt.key_id, spoilt.public_digest)
        recover(key, spoilt.vectors)
    assert caught.value.reason is reason
    require_mentions(caught.value.detail, *words.split())
    assert caught.value.blamed_on("client-3").culprit == "client-3"


def test_a_huge_but_finite_term_is_not_mistaken_for_an_infinite_one() -> None:
    assert is_finite(np.full(BODY + 1, 1e30, dtype=np.float32))
    assert not is_finite(np.full(BODY + 1, np.inf, dtype=np.float32))


def test_an_aggregate_is_checked_like_an_upload(key: PerturbationKey, terms: Terms) -> None:
    with refusal(Rejection, "beta", reason=AbortReason.BAD_VECTOR):
        recover(key, {**terms.vectors, "beta": np.zeros(3)})
    for name in ("gradient", "sigma.1", "beta", "head"):
        with refusal(Rejection, name, "finite", reason=AbortReason.BAD_VECTOR):
            recover(key, {**terms.vectors, name: terms.vectors[name] + np.nan})


def test_a_client_that_computes_with_another_partition_is_noticed(
    plan: PerturbationPlan, key: PerturbationKey
) -> None:
    """The digest of what the client really used is what it echoes."""
    other = replace(key.public, partition=1 - key.public.partition)
    terms = client_terms(plan, plan.model, other, torch.ones(2, 3), torch.tensor([1, 3]))
    with pytest.raises(Rejection) as caught:
        key.public.require_used(terms.key_id, terms.public_digest)
    assert caught.value.reason is AbortReason.WRONG_CONFIG


@pytest.mark.parametrize("weights", [[], [1.0, 1.0], [0.0], [-1.0]], ids=str)
def test_weights_that_do_not_fit_are_refused(terms: Terms, weights: list[float]) -> None:
    with pytest.raises(LocalProtocolError, match="weight"):
        weighted_mean([terms], weights)


def test_autograd_and_the_hand_written_pass_agree(plan: PerturbationPlan) -> None:
    """A dense chain computes the same terms when it is sent through autograd."""
    general = replace(plan, dense_chain=None)
    model = copy.deepcopy(plan.model).double()
    for loss_groups in (1, 3):
        key = new_key(plan, PerturbationSettings(groups=loss_groups), SeededEntropy(2))
        load_parameters(plan, model, key.perturb(plan.flatten(model.state_dict())))
        inputs, targets = torch.linspace(-1, 1, 12).reshape(4, 3).double(), torch.tensor([0, 1, 2, 3])
        by_hand, by_autograd = (client_terms(p, model, key.public, inputs, targets) for p in (plan, general))
        for name, vector in by_hand.vectors.items():
            assert np.allclose(vector, by_autograd.vectors[name], rtol=1e-12, atol=1e-14)


def conv_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.Linear(64, 64),
    )


def chain_network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)
    )


def step_of_a_client(plan: PerturbationPlan, key: PerturbationKey) -> Terms:
    inputs, labels = torch.ones(2, 1, 4, 4), torch.tensor([0, 63])
    if key.settings.loss == "mse":
        return client_terms(plan, plan.model, key.public, inputs, labels)
    forward = run_forward(plan, plan.model, key.public, inputs)
    exchange = exchange_request(forward, SeededEntropy(4))
    reply = answer(key, exchange.request, SeededEntropy(5))
    return cross_entropy_terms(forward, conclude(key.public, exchange, reply), labels)


@pytest.mark.parametrize("loss", ["mse", "ce"])
@pytest.mark.parametrize("network", [conv_network, chain_network])
def test_no_tensor_of_outputs_times_parameters_is_built(network: Callable[[], nn.Module], loss: Any) -> None:
    """With 64 outputs and m = 1 the largest tensor of a client step is no larger than one term."""
    plan = trace(network(), torch.zeros(1, 1, 4, 4))
    key = new_key(plan, PerturbationSettings(loss=loss), SeededEntropy(3))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for value in result if isinstance(result, tuple | list) else (result,):
                if isinstance(value, torch.Tensor):
                    largest = max(largest, value.numel())
            return result

    with Watch():
        step_of_a_client(plan, key)
    assert 0 < largest <= plan.size + 1


@pytest.mark.parametrize("network", [conv_network, chain_network])
@pytest.mark.parametrize(("loss", "passes"), [("mse", lambda m: m + 2), ("ce", lambda m: 3 * m + 1)])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_client_goes_backward_through_one_forward_pass_once_per_term(
    network: Callable[[], nn.Module],
    loss: Any,
    passes: Callable[[int], int],
    groups: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = trace(network(), torch.zeros(1, 1, 4, 4))
    key = new_key(plan, PerturbationSettings(loss=loss, groups=groups), SeededEntropy(3))
    seen: list[tuple[type, int]] = []
    for body in (AutogradBody, DenseChainBody):
        truly = body.pull_back

        def counted(self, cotangents, destinations, truly=truly) -> None:
            seen.append((type(self), len(cotangents)))
            truly(self, cotangents, destinations)

        monkeypatch.setattr(body, "pull_back", counted)
    step_of_a_client(plan, key)
    assert seen == [(AutogradBody if network is conv_network else DenseChainBody, passes(groups))]
