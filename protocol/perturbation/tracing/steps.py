"""One node of a traced model, as its rule sees it.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from veilsum.protocol.perturbation.errors import UnsupportedModel
from veilsum.protocol.perturbation.tracing.factors import FactorSpace
from veilsum.protocol.perturbation.tracing.plan import ParameterFactors, RunningNorm


@dataclass(frozen=True, eq=False)
class Tracked:
    """A tensor on its way through the model and the factor identifiers of its entries.

    Identifiers have the rank of the value and broadcast to its shape; their batch dimension is always one.
    """

    value: Tensor
    identifiers: Tensor

    def labels(self) -> Tensor:
        """One number for every entry: its identifier times the number of samples, plus the number of its sample."""
        batch = self.value.shape[0]
        samples = torch.arange(batch).reshape(-1, *(1,) * (self.value.dim() - 1))
        return (self.identifiers * batch + samples).expand(self.value.shape).contiguous()


@dataclass(eq=False)
class Ledger:
    """What the walk through the graph collects."""

    space: FactorSpace = field(default_factory=FactorSpace)
    parameters: dict[str, ParameterFactors] = field(default_factory=dict)
    norms: list[RunningNorm] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def record(
        self, name: str, parameter: Tensor, outgoing: Tensor | None, incoming: Tensor | None = None
    ) -> None:
        self.parameters[name] = ParameterFactors(
            name,
            tuple(parameter.shape),
            None if outgoing is None else outgoing.numpy().copy(),
            None if incoming is None else incoming.numpy().copy(),
        )


@dataclass(frozen=True, eq=False)
class Step:
    """A call: where it is, what it computes, its arguments with tensors replaced by `Tracked`, its result."""

    name: str
    operation: str
    apply: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    value: Any
    ledger: Ledger
    module: nn.Module | None = None
    is_head: bool = False

    @property
    def space(self) -> FactorSpace:
        return self.ledger.space

    def refuse(self, reason: str) -> UnsupportedModel:
        return UnsupportedModel(self.name, reason)

    def argument(self, position: int, keyword: str, default: Any = None) -> Any:
        if len(self.arguments) > position:
            return self.arguments[position]
        return self.keywords.get(keyword, default)

    def tensor(self) -> Tracked:
        """The one tensor this call works on."""
        first = self.arguments[0] if self.arguments else self.keywords.get("input")
        if not isinstance(first, Tracked):
            raise self.refuse(f"{self.operation} is not applied to a tensor of the model")
        return first

    def every_tensor(self) -> list[Tracked]:
        found: list[Tracked] = []
        _collect((self.arguments, tuple(self.keywords.values())), found)
        return found

    def channels(self, spatial: int) -> Tensor:
        """One identifier per channel of an (N, C, ...) tensor with the given number of further dimensions."""
        tracked = self.tensor()
        if tracked.value.dim() != 2 + spatial:
            raise self.refuse(f"{self.operation} needs a batch of {spatial}-dimensional maps")
        tied = self.space.tie(tracked.identifiers, tuple(range(2, 2 + spatial)))
        return tied.reshape(-1).expand(tracked.value.shape[1])


def on_labels(argument: Any) -> Any:
    """The same arguments with every tensor replaced by its labels, entry by entry."""
    if isinstance(argument, Tracked):
        return argument.labels()
    if isinstance(argument, list | tuple):
        return type(argument)(map(on_labels, argument))
    return argument


def per_channel(identifiers: Tensor, rank: int) -> Tensor:
    """Identifiers of the channels of a tensor of the given rank."""
    return identifiers.reshape(1, -1, *(1,) * (rank - 2))


def ones_like(value: Tensor) -> Tensor:
    """Identifiers of a tensor without factors."""
    return torch.zeros((1,) * value.dim(), dtype=torch.int64)


def _collect(argument: Any, found: list[Tracked]) -> None:
    if isinstance(argument, Tracked):
        found.append(argument)
    elif isinstance(argument, list | tuple):
        for item in argument:
            _collect(item, found)
