"""A client's work in one round: one forward pass, then one backward pass per term.

The terms differ only in what is sent back from the features (the input of the last layer), so each term is a
cotangent at the features and one reverse pass through the body. Nothing of size outputs x parameters is ever
built: directions are contracted before the backward pass. The last layer's terms are closed forms.

Per sample, with e the perturbed error, W the perturbed head weight, d a group's direction, u the feature
weights, and a, b from the exchange, the cotangents are

    mean squared error    W'e;    alpha W'd + (d'e) u  per group;    alpha u
    cross entropy         W'(a - y);    (d'(a - y)) u,  (d'b) u  and  W'b on the group's rows, per group.

Stacking the passes, by vmap or in the batch dimension, was measured and lost on convolutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from veilsum.protocol.errors import EncodingError, LocalProtocolError
from veilsum.protocol.perturbation import layout
from veilsum.protocol.perturbation.exchange import ClientExchange, SurrogateSoftmax, ask
from veilsum.protocol.perturbation.layout import Terms, Vector
from veilsum.protocol.perturbation.losses import mean_loss, target_matrix
from veilsum.protocol.perturbation.moments import recorded_moments
from veilsum.protocol.perturbation.plan import Plan
from veilsum.protocol.perturbation.public import PublicNoise
from veilsum.protocol.randomness import RandomBytes


@dataclass(eq=False)
class Forward:
    """One forward pass on the perturbed model, kept for the backward passes."""

    plan: Plan
    public: PublicNoise
    features: Tensor
    outputs: Tensor
    head: nn.Linear
    body: Sequence[nn.Parameter]
    moments: Tensor | None

    @property
    def alpha(self) -> Tensor:
        return self.features.detach().sum(dim=1) * self.public.feature_weight

    def directions(self) -> Tensor:
        """One row per group, in the precision of the model."""
        return torch.as_tensor(self.public.grouped_directions()).to(self.outputs)


def run_forward(plan: Plan, module: nn.Module, public: PublicNoise, inputs: Tensor) -> Forward:
    """Run the model, whose parameters are the perturbed ones, on one batch."""
    public.require_fits(plan)
    if inputs.shape[0] == 0:
        raise LocalProtocolError("the batch is empty: a client without samples has no terms to upload")
    head = module.get_submodule(plan.head.module)
    assert isinstance(head, nn.Linear)
    captured: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0]))
    try:
        with recorded_moments(plan, module) as recorder:
            outputs = module(inputs)
            moments = recorder.read() if plan.norms else None
    finally:
        hook.remove()
    own = {id(parameter) for parameter in head.parameters()}
    body = [parameter for parameter in module.parameters() if id(parameter) not in own]
    return Forward(plan, public, captured[0], outputs, head, body, moments)


def exchange_request(forward: Forward, random: RandomBytes) -> ClientExchange:
    """What a client asks the server before it can compute cross-entropy terms."""
    outputs = forward.outputs.detach().double().cpu().numpy()
    return ask(forward.public, outputs, forward.alpha.double().cpu().numpy(), random)


def client_terms(
    plan: Plan, module: nn.Module, public: PublicNoise, inputs: Tensor, targets: Tensor
) -> Terms:
    """All terms of one batch, where no exchange is needed: noise `scale` with any loss, or squared error."""
    if public.has_offset and public.loss == "ce":
        raise LocalProtocolError("cross entropy with an offset needs an exchange: use cross_entropy_terms")
    forward = run_forward(plan, module, public, inputs)
    return squared_error_terms(forward, targets) if public.has_offset else _scaled_terms(forward, targets)


def squared_error_terms(forward: Forward, targets: Tensor) -> Terms:
    samples = forward.outputs.shape[0]
    weight, features, alpha = forward.head.weight.detach(), forward.features.detach(), forward.alpha
    error = forward.outputs.detach() - target_matrix(targets, forward.outputs)
    directions, u = forward.directions(), forward.public.feature_weight
    along = error @ directions.T / samples
    spread = alpha / samples

    def cotangents() -> Iterator[Tensor]:
        yield error @ weight / samples
        for group, direction in enumerate(directions):
            yield torch.outer(spread, direction @ weight).add_(along[:, group, None], alpha=u)
        yield (spread * u)[:, None].expand_as(features)

    gradient, *sigmas, beta = _backward(forward, cotangents())
    vectors = {layout.GRADIENT: _whole(forward, gradient, error / samples, 0.5 * (error**2).sum() / samples)}
    for group, grads in enumerate(sigmas):
        vectors[layout.sigma(group)] = _joined([*grads, alpha @ along[:, group]])
    vectors[layout.BETA] = _joined([*beta, 0.5 * alpha @ spread])
    vectors[layout.HEAD] = _joined([spread @ features, spread.sum()])
    return _finished(forward, vectors)


def cross_entropy_terms(forward: Forward, softmax: SurrogateSoftmax, targets: Tensor) -> Terms:
    samples = forward.outputs.shape[0]
    weight, features = forward.head.weight.detach(), forward.features.detach()
    labels = target_matrix(targets, forward.outputs, sums_to_one=True)
    surrogate = torch.as_tensor(softmax.surrogate).to(forward.outputs)
    direction_values = torch.as_tensor(softmax.direction).to(forward.outputs)
    error, noise = (surrogate - labels) / samples, direction_values / samples
    directions = forward.directions()
    members = (directions != 0).to(noise.dtype)
    uniform = torch.full_like(features[:1], forward.public.feature_weight)

    def cotangents() -> Iterator[Tensor]:
        yield error @ weight
        for source in (error, noise):
            for direction in directions:
                yield (source @ direction)[:, None] * uniform
        for member in members:
            yield (noise * member) @ weight

    gradient, *rest = _backward(forward, cotangents())
    groups = forward.public.groups
    names = [name(s) for name in (layout.sigma, layout.beta, layout.psi) for s in range(groups)]
    linear = directions @ (labels * forward.alpha[:, None]).sum(dim=0) / samples
    loss = _partial_loss(forward, softmax, labels)
    vectors = {layout.GRADIENT: _whole(forward, gradient, error, loss)}
    for name, grads in zip(names, rest, strict=True):
        group = names.index(name)
        vectors[name] = _joined([*grads, linear[group]] if group < groups else grads)
    head = [torch.cat((noise.T @ features, noise.sum(dim=0)[:, None]), dim=1)]
    vectors[layout.HEAD] = _joined(head if softmax.log_partition is not None else [*head, labels.mean(dim=0)])
    return _finished(forward, vectors)


def load_parameters(plan: Plan, module: nn.Module, flat: NDArray[np.floating[Any]]) -> None:
    """Copy a flat vector into a module, in the module's own precision."""
    if flat.shape != (plan.size,):
        raise EncodingError(f"the model has {plan.size} parameters, the vector {flat.shape}")
    with torch.no_grad():
        for parameter, place in zip(module.parameters(), plan.slices().values(), strict=True):
            parameter.copy_(torch.as_tensor(flat[place]).reshape(parameter.shape))


def _scaled_terms(forward: Forward, targets: Tensor) -> Terms:
    loss = mean_loss(forward.outputs, target_matrix(targets, forward.outputs), forward.public.loss)
    grads = torch.autograd.grad(loss, _parameters(forward))
    return _finished(forward, {layout.GRADIENT: _joined([*grads, loss.detach()])})


def _parameters(forward: Forward) -> list[nn.Parameter]:
    """Body and head in the order of the plan."""
    own = {f"{forward.plan.head.module}.{name}": p for name, p in forward.head.named_parameters()}
    body = iter(forward.body)
    return [own[p.name] if p.name in own else next(body) for p in forward.plan.parameters]


def _backward(forward: Forward, cotangents: Iterable[Tensor]) -> list[Sequence[Tensor]]:
    """One reverse pass from the features through the body per cotangent."""
    if not forward.body:
        return [() for _ in cotangents]
    return [
        torch.autograd.grad(
            forward.features, forward.body, cotangent, retain_graph=True, materialize_grads=True
        )
        for cotangent in cotangents
    ]


def _whole(forward: Forward, body: Sequence[Tensor], error: Tensor, loss: Tensor) -> Vector:
    """The gradient term: body and head in the order of the parameters, then the scalar of the loss."""
    name = forward.plan.head.module
    own = {f"{name}.weight": error.T @ forward.features.detach(), f"{name}.bias": error.sum(dim=0)}
    rest = iter(body)
    pieces = [own[p.name] if p.name in own else next(rest) for p in forward.plan.parameters]
    return _joined([*pieces, loss])


def _partial_loss(forward: Forward, softmax: SurrogateSoftmax, labels: Tensor) -> Tensor:
    """The part of the true loss that a client can compute; the server completes it with its secrets."""
    if softmax.log_partition is None:
        return -(labels * torch.as_tensor(softmax.surrogate).to(labels).log()).sum(dim=1).mean()
    partition = torch.as_tensor(softmax.log_partition).to(labels)
    return (partition - (labels * forward.outputs.detach()).sum(dim=1)).mean()


def _finished(forward: Forward, vectors: dict[str, Vector]) -> Terms:
    if forward.moments is not None:
        vectors[layout.MOMENTS] = forward.moments.cpu().numpy()
    for name, vector in vectors.items():
        if not layout.is_finite(vector):
            raise EncodingError(f"term {name} is not finite: check the inputs, or ask for a smaller gamma")
    return Terms(forward.public.key_id, forward.public.digest, vectors)


def _joined(pieces: Sequence[Tensor]) -> Vector:
    return torch.cat([piece.reshape(-1) for piece in pieces]).cpu().numpy()
