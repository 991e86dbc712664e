"""Keys, settings and magnitudes."""

from __future__ import annotations

import copy
import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, EncodingError, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.losses import mean_loss
from veilsum.protocol.perturbation.algebra.packing import load_parameters
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.algebra.terms import client_terms
from veilsum.protocol.perturbation.errors import PrecisionLost
from veilsum.protocol.perturbation.settings import CONDITION_BAND, PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.roles.process.entropy import SeededEntropy

SMALL = trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4)), torch.zeros(1, 2))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.ReLU(),
            nn.Linear(8, 4),
        )


@pytest.fixture(scope="module")
def plan(model: nn.Module) -> PerturbationPlan:
    return trace(model, torch.zeros(1, 1, 6, 6))


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(5, 1, 6, 6, generator=generator), torch.randn(5, 4, generator=generator)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": 5}, "5 groups"),
        ({"groups": 0}, "groups must be"),
        ({"gamma": 0.0}, "gamma must be"),
        ({"gamma": math.nan}, "gamma must be"),
        ({"gamma": 1e5}, "precision in float32"),
        ({"gamma": 1e9, "precision": "float64"}, "precision in float64"),
        ({"gamma": 500.0, "alpha": "sum"}, "lose all precision"),
        ({"mode": "offset"}, "mode 'offset'"),
        ({"exchange": "exp"}, "exchange 'exp'"),
        ({"factor_range": (0.0, 1.0)}, "factor_range"),
        ({"factor_range": (1.1, 1.9), "bit_exact": True}, "power of two"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_with_the_remedy(
    plan: PerturbationPlan, options, words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        new_key(plan, PerturbationSettings(**options), SeededEntropy(1))


def test_cross_entropy_with_one_output_is_refused() -> None:
    single = trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.zeros(1, 3))
    with refusal(ParameterError, "entropy", "two", "outputs", "mse"):
        new_key(single, PerturbationSettings(loss="ce"), SeededEntropy(1))


def test_keys_are_fresh_and_follow_the_entropy_alone(plan: PerturbationPlan) -> None:
    first, second, again = (new_key(plan, PerturbationSettings(), SeededEntropy(seed)) for seed in (1, 2, 1))
    assert first.public.key_id != second.public.key_id
    assert not np.isclose(first.scale, second.scale)[first.scale != 1].any()
    assert np.array_equal(first.scale, again.scale)
    assert first.public.digest == again.public.digest != second.public.digest


def test_a_source_that_returns_too_little_is_refused(plan: PerturbationPlan) -> None:
    with pytest.raises(LocalProtocolError, match="randomness source"):
        new_key(plan, PerturbationSettings(), lambda n: bytes(n - 1))


def test_secrets_do_not_show_in_the_representation_of_a_key(plan: PerturbationPlan) -> None:
    key = new_key(plan, PerturbationSettings(groups=2), os.urandom)
    shown = repr(key)
    assert "not shown" in shown
    assert not any(str(gamma) in shown or f"{gamma:.4f}" in shown for gamma in key.gammas)


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 1000))
def test_partitions_cover_all_groups_evenly_and_factors_keep_their_range(groups: int, seed: int) -> None:
    key = new_key(SMALL, PerturbationSettings(groups=groups, gamma=2.0), SeededEntropy(seed))
    sizes = np.bincount(key.public.partition, minlength=groups)
    assert sizes.sum() == 4
    assert sizes.max() - sizes.min() <= 1
    assert ((np.abs(key.gammas) >= 1.0) & (np.abs(key.gammas) <= 3.0)).all()
    assert ((key.scale >= 1 / 64) & (key.scale <= 64)).all()
    assert len(set(np.abs(key.public.directions))) == 4


def test_power_of_two_factors_round_nothing(model: nn.Module, plan: PerturbationPlan, batch) -> None:
    """With scaling alone and bit_exact factors the float32 gradient equals the plain one bit for bit."""
    inputs, targets = batch
    key = new_key(
        plan,
        PerturbationSettings(mode="scale", bit_exact=True, factor_range=(2.0**-10, 2.0**10)),
        SeededEntropy(3),
    )
    client = copy.deepcopy(model)
    load_parameters(plan, client, key.perturb(plan.flatten(model.state_dict())))
    found = recover(key, client_terms(plan, client, key.public, inputs, targets).vectors).gradient
    plain = copy.deepcopy(model)
    gradients = torch.autograd.grad(mean_loss(plain(inputs), targets, "mse"), list(plain.parameters()))
    expected = torch.cat([gradient.reshape(-1) for gradient in gradients])
    assert torch.equal(torch.as_tensor(found).float(), expected)
    assert len(set(key.scale)) > 3


def test_protected_inference_predicts_what_the_true_model_predicts(
    model: nn.Module, plan: PerturbationPlan, batch
) -> None:
    """A model without offset has other weights and the same outputs; the buffers stay as they are."""
    inputs, _ = batch
    true = copy.deepcopy(model).double().eval()
    key = new_key(plan, PerturbationSettings(), SeededEntropy(4))
    protected = copy.deepcopy(true)
    load_parameters(plan, protected, key.perturb(plan.flatten(true.state_dict()), inference=True))
    assert torch.equal(protected[1].running_var, true[1].running_var)
    assert torch.allclose(protected(inputs.double()), true(inputs.double()), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(protected[4].weight, true[4].weight)


def test_parameters_of_the_wrong_size_or_not_finite_are_refused(plan: PerturbationPlan) -> None:
    key = new_key(plan, PerturbationSettings(), SeededEntropy(4))
    with pytest.raises(EncodingError, match=f"{plan.size} parameters"):
        key.perturb(np.zeros(plan.size - 1))
    with pytest.raises(EncodingError, match="not finite"):
        key.perturb(np.full(plan.size, np.nan))
    with refusal(EncodingError, "0.weight", "missing"):
        plan.flatten({})
    with refusal(EncodingError, "0.weight", "shape"):
        plan.flatten({"0.weight": np.zeros(3)})


def test_a_condition_number_without_digits_left_aborts_and_says_what_to_do(
    plan: PerturbationPlan, batch
) -> None:
    """Where the true gradient vanishes beside the terms, the round ends and names a smaller gamma."""
    key = new_key(plan, PerturbationSettings(gamma=2.0), SeededEntropy(5))
    terms = dict(client_terms(plan, plan.model, key.public, *batch).vectors)
    true = recover(key, terms).gradient / key.scale
    terms["gradient"] = terms["gradient"] - np.append(true, 0.0)
    with refusal(PrecisionLost, "gamma", 0.5) as caught:
        recover(key, terms)
    assert caught.value.suggested_gamma == 0.5
    assert caught.value.condition > 1e7


def test_the_magnitude_follows_the_condition_number(model: nn.Module, plan: PerturbationPlan, batch) -> None:
    """From a gamma far too large the condition number is warned about, reaches its band and stays."""
    inputs, targets = batch
    settings, seen = PerturbationSettings(gamma=300.0), []
    for round_number in range(30):
        key = new_key(plan, settings, SeededEntropy(100 + round_number))
        client = copy.deepcopy(model)
        load_parameters(plan, client, key.perturb(plan.flatten(model.state_dict())))
        found = recover(key, client_terms(plan, client, key.public, inputs, targets).vectors)
        seen.append(found)
        settings = settings.adapted(found.condition)
    assert seen[0].condition > 1000
    assert "above 1000" in str(seen[0].warning)
    assert CONDITION_BAND[0] / 2 < np.median([found.condition for found in seen[-20:]]) < CONDITION_BAND[1]
    assert sum(found.warning is None for found in seen[-20:]) >= 18


def test_the_offset_never_adapts_where_there_is_none() -> None:
    scale = PerturbationSettings(mode="scale")
    assert scale.adapted(1e6) is scale
    assert PerturbationSettings(gamma=4.0).adapted(math.inf).gamma == 1.0


@pytest.mark.parametrize("mode", ["scale", "scale+offset"])
@pytest.mark.parametrize("loss", ["mse", "ce"])
def test_each_kind_of_perturbation_names_its_leak_in_one_line(mode, loss) -> None:
    leak = PerturbationSettings(mode=mode, loss=loss).leak()
    assert "\n" not in leak
    assert ("least squares" in leak) == (mode == "scale+offset")
    assert ("softmax" in leak) == (mode == "scale+offset" and loss == "ce")


def test_a_client_refuses_a_perturbation_for_another_model(plan: PerturbationPlan, batch) -> None:
    key = new_key(SMALL, PerturbationSettings(), SeededEntropy(6))
    with pytest.raises(Rejection) as caught:
        client_terms(plan, plan.model, key.public, *batch)
    assert caught.value.reason is AbortReason.WRONG_MODEL


def test_clients_refuse_empty_batches_infinite_inputs_and_targets_of_another_shape(
    plan: PerturbationPlan, batch
) -> None:
    inputs, targets = batch
    key = new_key(plan, PerturbationSettings(), SeededEntropy(7))
    with pytest.raises(LocalProtocolError, match="batch is empty"):
        client_terms(plan, plan.model, key.public, inputs[:0], targets[:0])
    with pytest.raises(EncodingError, match="not finite"):
        client_terms(plan, plan.model, key.public, inputs * math.inf, targets)
    for other in (inputs[:, :-1], inputs[..., None], inputs.int()):
        with refusal(LocalProtocolError, "traced", "shape"):
            client_terms(plan, plan.model, key.public, other, targets)
    with pytest.raises(LocalProtocolError, match="training mode"):
        client_terms(plan, copy.deepcopy(plan.model).eval(), key.public, inputs, targets)
    with pytest.raises(LocalProtocolError, match="targets have shape"):
        client_terms(plan, plan.model, key.public, inputs, targets[:, :2])
    with refusal(LocalProtocolError, "class", 4):
        client_terms(plan, plan.model, key.public, inputs, torch.tensor([0, 1, 2, 3, 4]))


def test_larger_offsets_ask_for_more_fractional_bits() -> None:
    assert PerturbationSettings().fraction_bits == 32
    assert PerturbationSettings(gamma=10.0).fraction_bits == 40
    assert PerturbationSettings(gamma=10.0, mode="scale").fraction_bits == 32
