"""How each supported operation passes factors on.

A rule sees one call and returns the identifiers of its result. The list is closed: an operation without a
rule is refused. Rules rest on three facts. Linear maps can absorb any factor into their weights. A positive
factor passes through max, ReLU and their relatives. Moving entries around moves their factors with them, so
such operations are simply run on the identifiers.

Normalisation divides by a standard deviation plus a small constant; with a factor in front, the constant
would need the square of the factor, which would show it. So the factor in front of a normalisation is one,
and its affine parameters, if it has any, carry fresh factors.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from veilsum.protocol.perturbation.tracing.factors import broadcast
from veilsum.protocol.perturbation.tracing.plan import RunningNorm
from veilsum.protocol.perturbation.tracing.steps import Step, Tracked, on_labels, ones_like, per_channel

Rule = Callable[[Step], Tensor]


def linear(step: Step) -> Tensor:
    module, tracked = step.module, step.tensor()
    assert isinstance(module, nn.Linear)
    rank = tracked.value.dim()
    tied = step.space.tie(tracked.identifiers, tuple(range(1, rank - 1)))
    incoming = tied.reshape(1, -1).expand(1, module.in_features)
    if step.is_head:
        outgoing = torch.zeros(module.out_features, dtype=torch.int64)
    else:
        outgoing = step.space.fresh(module.out_features)
    _record_layer(step, module, outgoing, incoming)
    return outgoing.reshape(*(1,) * (rank - 1), -1)


def convolution(step: Step) -> Tensor:
    module = step.module
    assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    channels = step.channels(len(module.kernel_size))
    per_group = channels.reshape(module.groups, -1)
    incoming = per_group.repeat_interleave(module.out_channels // module.groups, dim=0)
    if module.groups == 1:
        incoming = per_group
    outgoing = step.space.fresh(module.out_channels)
    _record_layer(step, module, outgoing, incoming)
    return per_channel(outgoing, step.value.dim())


def normalisation(step: Step) -> Tensor:
    module = step.module
    assert isinstance(module, nn.Module)
    step.space.equate(step.tensor().identifiers, torch.zeros((), dtype=torch.int64))
    if getattr(module, "track_running_stats", False):
        if not isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            raise step.refuse(f"{step.operation} with running statistics is not supported; switch them off")
        step.ledger.norms.append(RunningNorm(step.name, module.num_features, module.momentum))
    weight = next(module.parameters(), None)
    if weight is None:
        return ones_like(step.value)
    outgoing = step.space.fresh(weight.numel())
    _record_layer(step, module, outgoing, None)
    return per_channel(outgoing, step.value.dim())


def elementwise(step: Step) -> Tensor:
    return step.tensor().identifiers


def parametric_relu(step: Step) -> Tensor:
    assert isinstance(step.module, nn.PReLU)
    # The slope acts on signs alone: it needs no factor and is sent in clear.
    step.ledger.record(f"{step.name}.weight", step.module.weight, None)
    return step.tensor().identifiers


def pooling(spatial: int) -> Rule:
    def rule(step: Step) -> Tensor:
        return per_channel(step.channels(spatial), step.value.dim())

    return rule


def rearrangement(step: Step) -> Tensor:
    """Views, transpositions, slices, concatenations: run them on labels, see where those go."""
    moved: Tensor = step.apply(
        *map(on_labels, step.arguments), **{k: on_labels(v) for k, v in step.keywords.items()}
    )
    batch = step.every_tensor()[0].value.shape[0]
    samples = torch.arange(batch).reshape(-1, *(1,) * (moved.dim() - 1))
    if moved.shape[:1] != (batch,) or not torch.equal(moved % batch, samples.expand_as(moved)):
        raise step.refuse(f"{step.operation} moves entries across samples; keep dimension 0 as it is")
    return moved[:1] // batch


def reduction(step: Step) -> Tensor:
    """Mean, sum or maximum over dimensions that share one factor."""
    tracked = step.tensor()
    chosen = step.argument(1, "dim")
    if chosen is None:
        raise step.refuse(f"{step.operation} over all dimensions mixes samples; name the dimensions")
    rank = tracked.value.dim()
    dimensions = tuple(d % rank for d in ((chosen,) if isinstance(chosen, int) else tuple(chosen)))
    if 0 in dimensions:
        raise step.refuse(f"{step.operation} over the batch dimension mixes samples")
    tied = step.space.tie(tracked.identifiers, dimensions)
    return tied if step.value.dim() == rank else tied.squeeze(dimensions)


def addition(step: Step) -> Tensor:
    left, right = step.argument(0, "input"), step.argument(1, "other")
    if not (isinstance(left, Tracked) and isinstance(right, Tracked)):
        number = right if isinstance(left, Tracked) else left
        if number == 0:
            return step.every_tensor()[0].identifiers
        raise step.refuse("adding a constant is not positively homogeneous; let a bias do it, or the data")
    step.space.equate(left.identifiers, right.identifiers)
    return broadcast(left.identifiers, right.identifiers)[0]


def multiplication(step: Step) -> Tensor:
    left, right = step.argument(0, "input"), step.argument(1, "other")
    if isinstance(left, Tracked) and isinstance(right, Tracked):
        return step.space.multiply(left.identifiers, right.identifiers)
    return step.every_tensor()[0].identifiers


def division(step: Step) -> Tensor:
    if isinstance(step.argument(1, "other"), Tracked):
        raise step.refuse("dividing by a tensor is not supported; divide by a number")
    if step.argument(2, "rounding_mode") is not None:
        raise step.refuse("division that rounds is not positively homogeneous")
    return step.tensor().identifiers


def padding(step: Step) -> Tensor:
    if step.argument(2, "mode", "constant") != "constant" or step.argument(3, "value") not in (None, 0, 0.0):
        raise step.refuse("only padding with zeros is supported")
    return _padded(step, tuple(step.argument(1, "pad")))


def zero_padding(step: Step) -> Tensor:
    assert isinstance(step.module, nn.ZeroPad1d | nn.ZeroPad2d | nn.ZeroPad3d)
    return _padded(step, tuple(step.module.padding))


def _padded(step: Step, amounts: tuple[int, ...]) -> Tensor:
    """Zeros carry any factor: new channels get fresh ones, and the border of a map that of its channel."""
    tracked = step.tensor()
    rank = tracked.value.dim()
    if len(amounts) >= 2 * rank or rank < 2:
        raise step.refuse("padding the batch dimension is not supported")
    tied = step.space.tie(tracked.identifiers, tuple(range(2, rank)))
    if len(amounts) < 2 * (rank - 1):
        return tied
    before, after = amounts[-2:]
    if min(before, after) < 0:
        raise step.refuse("padding by a negative amount is not supported; take a slice")
    channels = tied.reshape(-1).expand(tracked.value.shape[1])
    return per_channel(torch.cat((step.space.fresh(before), channels, step.space.fresh(after))), rank)


def _record_layer(step: Step, module: nn.Module, outgoing: Tensor, incoming: Tensor | None) -> None:
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    step.ledger.record(f"{step.name}.weight", weight, outgoing, incoming)
    if isinstance(bias, Tensor):
        step.ledger.record(f"{step.name}.bias", bias, outgoing)


MODULE_RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm), normalisation),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), normalisation),
    **dict.fromkeys((nn.ReLU, nn.LeakyReLU, nn.Identity), elementwise),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), elementwise),
    nn.PReLU: parametric_relu,
    **dict.fromkeys((nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool1d), pooling(1)),
    **dict.fromkeys((nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d), pooling(2)),
    **dict.fromkeys((nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveMaxPool3d, nn.AdaptiveAvgPool3d), pooling(3)),
    **dict.fromkeys((nn.Flatten, nn.Unflatten), rearrangement),
    **dict.fromkeys((nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle), rearrangement),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d), zero_padding),
}

FUNCTION_RULES: Mapping[Callable[..., Any], Rule] = {
    **dict.fromkeys((torch.relu, torch.relu_, functional.relu, functional.relu_), elementwise),
    **dict.fromkeys((functional.leaky_relu, functional.leaky_relu_, operator.neg, torch.neg), elementwise),
    **dict.fromkeys((operator.abs, torch.abs, torch.clone), elementwise),
    **dict.fromkeys((functional.dropout, functional.dropout1d, functional.dropout2d), elementwise),
    functional.dropout3d: elementwise,
    **dict.fromkeys((functional.max_pool1d, functional.avg_pool1d), pooling(1)),
    **dict.fromkeys((functional.adaptive_max_pool1d, functional.adaptive_avg_pool1d), pooling(1)),
    **dict.fromkeys((functional.max_pool2d, functional.avg_pool2d), pooling(2)),
    **dict.fromkeys((functional.adaptive_max_pool2d, functional.adaptive_avg_pool2d), pooling(2)),
    **dict.fromkeys((functional.max_pool3d, functional.avg_pool3d), pooling(3)),
    **dict.fromkeys((functional.adaptive_max_pool3d, functional.adaptive_avg_pool3d), pooling(3)),
    **dict.fromkeys((torch.flatten, torch.unflatten, torch.reshape, torch.flip), rearrangement),
    **dict.fromkeys((torch.cat, torch.concat, torch.stack), rearrangement),
    **dict.fromkeys((torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze), rearrangement),
    operator.getitem: rearrangement,
    **dict.fromkeys((torch.mean, torch.sum, torch.amax), reduction),
    **dict.fromkeys(
        (operator.add, operator.iadd, operator.sub, operator.isub, torch.add, torch.sub), addition
    ),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul), multiplication),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div), division),
    functional.pad: padding,
}

METHOD_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("relu", "relu_", "neg", "abs", "clone", "contiguous"), elementwise),
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"), rearrangement),
    **dict.fromkeys(("permute", "transpose", "flip", "expand", "repeat"), rearrangement),
    **dict.fromkeys(("mean", "sum", "amax"), reduction),
    **dict.fromkeys(("add", "add_", "sub", "sub_"), addition),
    **dict.fromkeys(("mul", "mul_"), multiplication),
    **dict.fromkeys(("div", "div_"), division),
}

# Shapes and the arithmetic on them: these results are numbers, not tensors, and carry no factor.
NUMBER_FUNCTIONS = {
    getattr,
    operator.getitem,
    operator.mul,
    operator.floordiv,
    operator.add,
    operator.sub,
    math.prod,
}
NUMBER_METHODS = {"size", "dim", "numel"}
