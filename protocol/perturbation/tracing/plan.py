"""What tracing found out about a model: which factor scales which parameter entry.

Everything is a flat vector in the order of `named_parameters()`. Perturbation multiplies it by a *scale*
vector; recovery multiplies gradients by the same vector, because d(perturbed)/d(true) is the scale.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import EncodingError
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.tracing.factors import FactorTable

Identifiers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ParameterFactors:
    """Entry [o, i, ...] is scaled by factor(outgoing[o]) / factor(incoming[o, i]).

    Without `incoming` the divisor is one; without `outgoing` the parameter has no factors at all.
    """

    name: str
    shape: tuple[int, ...]
    outgoing: Identifiers | None
    incoming: Identifiers | None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def write_scale(self, factors: Reals, destination: Reals) -> None:
        """Fill a view of shape `self.shape`."""
        if self.outgoing is None:
            destination[...] = 1.0
            return
        rank = len(self.shape)
        forward = factors[self.outgoing].reshape(-1, *(1,) * (rank - 1))
        if self.incoming is None:
            destination[...] = forward
            return
        inverse = 1.0 / factors[self.incoming]
        np.multiply(forward, inverse.reshape(*inverse.shape, *(1,) * (rank - 2)), out=destination)


@dataclass(frozen=True)
class Head:
    """The last layer, y = W z + b, the only one that may receive an offset."""

    module: str
    outputs: int
    features: int
    has_bias: bool


@dataclass(frozen=True)
class RunningNorm:
    """A batch normalisation that keeps running statistics; `momentum` None means the cumulative mean."""

    module: str
    channels: int
    momentum: float | None


@dataclass(frozen=True)
class ParameterStatus:
    name: str
    shape: tuple[int, ...]
    perturbed_entries: int

    @property
    def perturbed(self) -> bool:
        return self.perturbed_entries > 0

    def __str__(self) -> str:
        size = math.prod(self.shape)
        if not self.perturbed:
            state = "sent in clear"
        elif self.perturbed_entries < size:
            state = f"perturbed ({self.perturbed_entries} of {size} entries)"
        else:
            state = "perturbed"
        return f"{self.name} {'x'.join(map(str, self.shape)) or 'scalar'}: {state}"


@dataclass(frozen=True, eq=False)
class PerturbationPlan:
    """A model that can be perturbed. The server needs nothing else; clients trace their own copy.

    `dense_chain` names the layers of a body that is nothing but linear layers, each followed by ReLU;
    `channels_last` says that the model takes images in that memory layout.
    """

    parameters: tuple[ParameterFactors, ...]
    table: FactorTable
    head: Head
    norms: tuple[RunningNorm, ...]
    warnings: tuple[str, ...]
    dense_chain: tuple[str, ...] | None
    channels_last: bool
    model: nn.Module = field(repr=False)
    example: torch.Tensor = field(repr=False)

    @cached_property
    def size(self) -> int:
        return sum(parameter.size for parameter in self.parameters)

    @property
    def body_size(self) -> int:
        return self.size - self.head.outputs * (self.head.features + self.head.has_bias)

    @cached_property
    def slices(self) -> dict[str, slice]:
        ends = list(accumulate(parameter.size for parameter in self.parameters))
        starts = [0, *ends[:-1]]
        return {p.name: slice(a, b) for p, a, b in zip(self.parameters, starts, ends, strict=True)}

    def head_slices(self) -> tuple[slice, slice | None]:
        """Where the head's weight and bias lie in the flat vector."""
        weight = self.slices[f"{self.head.module}.weight"]
        return weight, self.slices[f"{self.head.module}.bias"] if self.head.has_bias else None

    def body_slices(self) -> list[slice]:
        """The rest of the flat vector, as few slices as possible."""
        taken = [s for s in self.head_slices() if s is not None]
        merged: list[slice] = []
        for piece in self.slices.values():
            if piece in taken:
                continue
            if merged and merged[-1].stop == piece.start:
                merged[-1] = slice(merged[-1].start, piece.stop)
            else:
                merged.append(piece)
        return merged

    def scale(self, factors: Reals) -> Reals:
        """The flat scale vector for one evaluation of the factor table."""
        flat = np.empty(self.size)
        for parameter, place in zip(self.parameters, self.slices.values(), strict=True):
            parameter.write_scale(factors, flat[place].reshape(parameter.shape))
        return flat

    def flatten(self, state: Mapping[str, ArrayLike]) -> Reals:
        """A float64 vector of the named parameters; extra entries of `state` (buffers) are left alone."""
        return np.concatenate([self._entry(parameter, state) for parameter in self.parameters])

    def report(self) -> tuple[ParameterStatus, ...]:
        """Every parameter: perturbed by a factor, or sent in clear.

        A head weight also receives the offset, when the perturbation has one; a head bias never does.
        """
        # Distinct irrational-looking factors: a scale of exactly one then means that no factor is involved.
        draws = np.exp(np.sin(1.0 + np.arange(self.table.free)))
        scale = self.scale(self.table.evaluate(draws))
        return tuple(
            ParameterStatus(p.name, p.shape, int(np.count_nonzero(np.abs(scale[place] - 1.0) > 1e-12)))
            for p, place in self._placed()
        )

    @cached_property
    def digest(self) -> bytes:
        """Equal for parties whose models have the same parameters, in the same order, with the same head."""
        text = repr(([(p.name, p.shape) for p in self.parameters], self.head, self.norms))
        return hashlib.sha256(length_prefixed(domain_tag("perturbation-plan"), text.encode())).digest()

    def _placed(self) -> Iterator[tuple[ParameterFactors, slice]]:
        return zip(self.parameters, self.slices.values(), strict=True)

    def _entry(self, parameter: ParameterFactors, state: Mapping[str, ArrayLike]) -> Reals:
        if parameter.name not in state:
            raise EncodingError(f"parameter {parameter.name!r} is missing from the state")
        value = np.asarray(state[parameter.name], dtype=np.float64)
        if value.shape != parameter.shape:
            raise EncodingError(
                f"parameter {parameter.name!r} has shape {value.shape}, not {parameter.shape}"
            )
        return value.reshape(-1)
