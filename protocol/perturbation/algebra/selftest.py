"""Before a plan is used: does the perturbed model really equal the true one, and do gradients come back?

Rules are proofs on paper; a mistake in one, or a normalisation that was given free factors, shows here as an
error many orders above rounding. Weights and inputs are drawn from a fixed public seed: nothing is secret.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from veilsum.protocol.crypto.domains import domain_tag
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.losses import mean_loss
from veilsum.protocol.perturbation.algebra.packing import load_parameters
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.algebra.terms import Forward, run_forward, squared_error_terms
from veilsum.protocol.perturbation.draws import Reals, UniformStream
from veilsum.protocol.perturbation.errors import FAILURES_OF_MODELS, UnsupportedModel, first_line
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan

TOLERANCE = 1e-8
_SAMPLES = 3


def run_self_test(plan: PerturbationPlan) -> float:
    """The larger of the relative errors of outputs and gradient; raises `UnsupportedModel` above 1e-8."""
    try:
        error = _compare(plan)
    except FAILURES_OF_MODELS as failure:
        raise UnsupportedModel(
            "self-test",
            f"the model does not train in float64 ({first_line(failure)}); avoid changes in place of values that "
            "gradients need, and fixed precisions",
        ) from failure
    if not error < TOLERANCE:
        raise UnsupportedModel(
            "self-test",
            f"the perturbed model differs from the true one by {error:.3g}; remove hooks and state that tracing "
            "does not see",
        )
    return error


def _compare(plan: PerturbationPlan) -> float:
    stream = UniformStream(
        lambda count: hashlib.shake_256(domain_tag("perturbation-self-test")).digest(count)
    )
    module = copy.deepcopy(plan.model).double().cpu().train()
    shape = (_SAMPLES, *plan.example.shape[1:])
    inputs = torch.as_tensor(stream.uniform(-1.0, 1.0, int(np.prod(shape))).reshape(shape))
    targets = torch.as_tensor(stream.uniform(-1.0, 1.0, _SAMPLES * plan.head.outputs)).reshape(_SAMPLES, -1)
    true = _disturbed(plan, module, stream)
    load_parameters(plan, module, true)
    masks = int.from_bytes(stream.octets(8), "big")
    with _dropout_from(masks):
        outputs = module(inputs)
        expected = _flat(torch.autograd.grad(mean_loss(outputs, targets, "mse"), list(module.parameters())))
    groups = min(2, plan.head.outputs)
    key = new_key(plan, PerturbationSettings(groups=groups, precision="float64"), stream.octets)
    load_parameters(plan, module, key.perturb(true))
    with _dropout_from(masks):
        forward = run_forward(plan, module, key.public, inputs)
    error = _output_error(forward, outputs.detach(), torch.as_tensor(key.offset))
    found = recover(key, squared_error_terms(forward, targets).vectors).gradient
    return max(error, float(np.linalg.norm(found - expected)) / max(float(np.linalg.norm(expected)), 1e-300))


@contextmanager
def _dropout_from(seed: int) -> Iterator[None]:
    """Dropout knows only the generator of torch: it draws the same masks for the true and the perturbed model, and the
    generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _disturbed(plan: PerturbationPlan, module: nn.Module, stream: UniformStream) -> Reals:
    """The model's own parameters, moved a little: zeros of an initialisation would hide mistakes."""
    own = _flat(list(module.parameters()))
    return own + stream.uniform(-0.1, 0.1, plan.size)


def _output_error(forward: Forward, expected: Tensor, offset: Tensor) -> float:
    found = forward.outputs.detach() - torch.outer(forward.alpha, offset)
    return float(torch.linalg.norm(found - expected) / torch.linalg.norm(expected).clamp_min(1e-300))


def _flat(tensors: list[nn.Parameter] | tuple[Tensor, ...]) -> Reals:
    flat: Reals = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy()
    return flat
