"""A client's work in one round: one forward pass, then one backward pass per term.

The terms differ only in what is sent back from the features (the input of the last layer), so each term is a
cotangent at the features and one reverse pass through the body. Nothing of size outputs x parameters is ever
built: directions are contracted before the backward pass. The last layer's terms are closed forms.

Per sample, with e the perturbed error, W the perturbed head weight, d a group's direction, u the feature
weights, and a, b from the exchange, the cotangents are

    mean squared error    W'e;    alpha W'd + (d'e) u  per group;    alpha u
    cross entropy         W'(a - y);    (d'(a - y)) u,  (d'b) u  and  W'b on the group's rows, per group.

Stacking the passes, by vmap or in the batch dimension, was measured and lost on convolutions.

Implements specs/perturbation.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from veilsum.protocol.errors import EncodingError, LocalProtocolError
from veilsum.protocol.perturbation.algebra import layout
from veilsum.protocol.perturbation.algebra.backward import (
    AutogradBody,
    Cotangent,
    DenseChainBody,
    ReversibleBody,
    detached,
)
from veilsum.protocol.perturbation.algebra.exchange import ClientExchange, SurrogateSoftmax, ask
from veilsum.protocol.perturbation.algebra.layout import Terms
from veilsum.protocol.perturbation.algebra.losses import loss_and_error, target_matrix
from veilsum.protocol.perturbation.algebra.moments import recorded_moments
from veilsum.protocol.perturbation.algebra.packing import TermBuffers
from veilsum.protocol.perturbation.errors import FAILURES_OF_MODELS, first_line
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.perturbation.settings import Loss
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.randomness import RandomBytes


@dataclass(frozen=True, eq=False)
class Forward:
    """One forward pass on the perturbed model, kept for the backward passes."""

    plan: PerturbationPlan
    public: PublicPerturbation
    body: ReversibleBody
    outputs: Tensor
    weight: Tensor
    moments: Tensor | None

    @property
    def features(self) -> Tensor:
        return self.body.features

    @property
    def alpha(self) -> Tensor:
        return self.features.sum(dim=1) * self.public.feature_weight

    def directions(self) -> Tensor:
        """One row per group, in the precision of the model."""
        return torch.as_tensor(self.public.grouped_directions()).to(self.outputs)

    def new_buffers(self) -> TermBuffers:
        return TermBuffers(self.plan, self.public, self.outputs)


def run_forward(
    plan: PerturbationPlan, module: nn.Module, public: PublicPerturbation, inputs: Tensor
) -> Forward:
    """Run the model, whose parameters are the perturbed ones, on one batch."""
    public.require_fits(plan)
    if inputs.shape[0] == 0:
        raise LocalProtocolError("the batch is empty: a client without samples has no terms to upload")
    if inputs.shape[1:] != plan.example.shape[1:] or not inputs.is_floating_point():
        raise LocalProtocolError(
            f"samples are {inputs.dtype} of shape {tuple(inputs.shape[1:])}, the model was traced with floats of shape "
            f"{tuple(plan.example.shape[1:])}"
        )
    head = module.get_submodule(plan.head.module)
    assert isinstance(head, nn.Linear)
    if plan.dense_chain is None:
        # With an offset, rounding differs from plain training anyway, so the faster layout costs nothing.
        if plan.channels_last and public.has_offset:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        body, outputs, moments = _run_module(plan, module, inputs, head)
    else:
        body, outputs, moments = _run_chain(plan.dense_chain, module, inputs, head)
    # Looking at the few outputs is enough here; whoever receives the terms looks at every entry.
    if not bool(torch.isfinite(outputs).all()):
        raise EncodingError(
            "the model's outputs are not finite: check the inputs, or ask for a smaller gamma"
        )
    return Forward(plan, public, body, outputs, head.weight.detach(), moments)


def exchange_request(forward: Forward, random: RandomBytes) -> ClientExchange:
    """What a client asks the server before it can compute cross-entropy terms."""
    outputs = forward.outputs.double().cpu().numpy()
    return ask(forward.public, outputs, forward.alpha.double().cpu().numpy(), random)


def client_terms(
    plan: PerturbationPlan, module: nn.Module, public: PublicPerturbation, inputs: Tensor, targets: Tensor
) -> Terms:
    """All terms of one batch, where no exchange is needed: `scale` alone, or the squared error."""
    if public.has_offset and public.loss == "ce":
        raise LocalProtocolError("cross entropy with an offset needs an exchange: use cross_entropy_terms")
    forward = run_forward(plan, module, public, inputs)
    if public.has_offset:
        return squared_error_terms(forward, targets)
    loss, error = loss_and_error(forward.outputs, targets, cast(Loss, public.loss))
    return scaled_terms(forward, error, loss)


def scaled_terms(forward: Forward, error: Tensor, loss: Tensor) -> Terms:
    """`scale` alone: the gradient, from the derivative of any mean loss with respect to the outputs."""
    buffers = forward.new_buffers()
    forward.body.pull_back([Cotangent(error @ forward.weight)], [buffers.body(layout.GRADIENT)])
    buffers.write_head(error, forward.features)
    buffers.write_end(layout.GRADIENT, loss)
    return _finished(forward, buffers)


def squared_error_terms(forward: Forward, targets: Tensor) -> Terms:
    weight, features, alpha = forward.weight, forward.features, forward.alpha
    loss, error = loss_and_error(forward.outputs, targets, "mse")
    directions, u = forward.directions(), forward.public.feature_weight
    along, spread = error @ directions.T, alpha / len(alpha)
    uniform = torch.full_like(features[:1], u)
    names = [layout.GRADIENT, *map(layout.sigma, range(len(directions))), layout.BETA]
    cotangents = [Cotangent(error @ weight)]
    for group, direction in enumerate(directions):
        mixed = torch.outer(spread, direction @ weight).add_(along[:, group, None], alpha=u)
        cotangents.append(Cotangent(mixed))
    cotangents.append(Cotangent(uniform, spread))

    buffers = forward.new_buffers()
    forward.body.pull_back(cotangents, [buffers.body(name) for name in names])
    buffers.write_head(error, features)
    buffers.write_end(layout.GRADIENT, loss)
    for group in range(len(directions)):
        buffers.write_end(layout.sigma(group), alpha @ along[:, group])
    buffers.write_end(layout.BETA, 0.5 * alpha @ spread)
    buffers.write(layout.HEAD, [spread @ features, spread.sum()])
    return _finished(forward, buffers)


def cross_entropy_terms(forward: Forward, softmax: SurrogateSoftmax, targets: Tensor) -> Terms:
    features, samples = forward.features, len(forward.outputs)
    labels = target_matrix(targets, forward.outputs, sums_to_one=True)
    error = (torch.as_tensor(softmax.surrogate).to(labels) - labels) / samples
    blinder = torch.as_tensor(softmax.direction).to(labels) / samples
    directions = forward.directions()
    groups = range(len(directions))
    names = [name(group) for name in (layout.sigma, layout.beta, layout.psi) for group in groups]
    uniform = torch.full_like(features[:1], forward.public.feature_weight)
    cotangents = [Cotangent(error @ forward.weight)]
    cotangents += [
        Cotangent(uniform, part @ direction) for part in (error, blinder) for direction in directions
    ]
    cotangents += [Cotangent((blinder * (direction != 0)) @ forward.weight) for direction in directions]

    buffers = forward.new_buffers()
    forward.body.pull_back(cotangents, [buffers.body(name) for name in (layout.GRADIENT, *names)])
    buffers.write_head(error, features)
    buffers.write_end(layout.GRADIENT, _partial_loss(forward, softmax, labels))
    linear = directions @ (labels * forward.alpha[:, None]).mean(dim=0)
    for group in groups:
        buffers.write_end(layout.sigma(group), linear[group])
    joint = torch.cat((blinder.T @ features, blinder.sum(dim=0)[:, None]), dim=1)
    printed = softmax.log_partition is None
    buffers.write(layout.HEAD, [joint, labels.mean(dim=0)] if printed else [joint])
    return _finished(forward, buffers)


def _run_chain(
    names: Sequence[str], module: nn.Module, inputs: Tensor, head: nn.Linear
) -> tuple[ReversibleBody, Tensor, None]:
    layers = [module.get_submodule(name) for name in names]
    body = DenseChainBody([layer for layer in layers if isinstance(layer, nn.Linear)], inputs)
    return body, nn.functional.linear(body.features, *detached(head)), None


def _run_module(
    plan: PerturbationPlan, module: nn.Module, inputs: Tensor, head: nn.Linear
) -> tuple[ReversibleBody, Tensor, Tensor | None]:
    captured: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0]))
    try:
        with recorded_moments(plan, module) as recorder:
            outputs = module(inputs)
            moments = recorder.read() if plan.norms else None
    except FAILURES_OF_MODELS as error:
        raise LocalProtocolError(
            f"the model does not run on a batch of {len(inputs)}: {first_line(error)}"
        ) from error
    finally:
        hook.remove()
    own = {id(parameter) for parameter in head.parameters()}
    body = AutogradBody(captured[0], [p for p in module.parameters() if id(p) not in own])
    return body, outputs.detach(), moments


def _partial_loss(forward: Forward, softmax: SurrogateSoftmax, labels: Tensor) -> Tensor:
    """The part of the true loss that a client can compute; the server completes it with its secrets."""
    if softmax.log_partition is None:
        return -(labels * torch.as_tensor(softmax.surrogate).to(labels).log()).sum(dim=1).mean()
    partition = torch.as_tensor(softmax.log_partition).to(labels)
    return (partition - (labels * forward.outputs).sum(dim=1)).mean()


def _finished(forward: Forward, buffers: TermBuffers) -> Terms:
    if forward.moments is not None:
        buffers.write(layout.MOMENTS, [forward.moments])
    return Terms(forward.public.key_id, forward.public.digest, buffers.vectors())
