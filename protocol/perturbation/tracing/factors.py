"""Unknown positive factors, and the equations between them.

A traced tensor carries one *factor identifier* per entry of a sample, in a tensor of the same rank whose
dimensions are full, or one where the factor does not vary. Identifier 0 is the constant one. A linear layer
makes fresh identifiers, an addition equates those of its two sides, a product of two branches multiplies
them. In logarithms these are linear equations with integer coefficients, so each identifier stands for an
integer combination of free variables (its *form*), and equating two forms eliminates one variable. Without
products every form is a single variable and this is exactly union-find.

An equation in which every coefficient is larger than one (two squares against three cubes, say) is met by
setting all its variables to one. That leaves some entries as they are, which the plan's report shows; fractional
exponents would perturb them too, but lose the exactness of power-of-two factors.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Form = Mapping[int, int]


@dataclass(frozen=True, eq=False)
class FactorTable:
    """How the factor of every identifier follows from independent draws."""

    free: int
    slots: NDArray[np.int64]
    composites: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]

    def evaluate(self, draws: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.concatenate(([1.0], draws))
        factors = values[self.slots]
        for identifier, powers in self.composites:
            factors[identifier] = math.prod(float(values[slot]) ** power for slot, power in powers)
        return factors


class FactorSpace:
    def __init__(self) -> None:
        self._forms: list[Form] = [{}]
        self._bound: dict[int, Form] = {}

    def fresh(self, count: int) -> Tensor:
        start = len(self._forms)
        self._forms.extend({identifier: 1} for identifier in range(start, start + count))
        return torch.arange(start, start + count)

    def equate(self, left: Tensor, right: Tensor) -> None:
        """Require equal factors, entry by entry, with the broadcasting of torch."""
        for one, other in _distinct_pairs(left, right)[0]:
            self._eliminate(_combined(self._reduced(self._forms[one]), self._reduced(self._forms[other]), -1))

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Identifiers of the entry-wise products."""
        pairs, positions, shape = _distinct_pairs(left, right)
        start = len(self._forms)
        self._forms.extend(_combined(self._forms[one], self._forms[other], 1) for one, other in pairs)
        return (start + positions).reshape(shape)

    def tie(self, identifiers: Tensor, dimensions: tuple[int, ...]) -> Tensor:
        """Require one factor along the given dimensions, which keep size one in the result."""
        first = identifiers
        for dimension in dimensions:
            first = first.narrow(dimension, 0, 1)
        self.equate(identifiers, first)
        return first

    def solve(self) -> FactorTable:
        reduced = [self._reduced(form) for form in self._forms]
        variables = sorted({variable for form in reduced for variable in form})
        slot_of = {variable: slot for slot, variable in enumerate(variables, start=1)}
        slots = np.zeros(len(reduced), dtype=np.int64)
        composites = []
        for identifier, form in enumerate(reduced):
            powers = tuple((slot_of[variable], power) for variable, power in sorted(form.items()))
            if len(powers) == 1 and powers[0][1] == 1:
                slots[identifier] = powers[0][0]
            elif powers:
                composites.append((identifier, powers))
        return FactorTable(len(variables), slots, tuple(composites))

    def _eliminate(self, difference: Form) -> None:
        if not difference:
            return
        divisor = math.gcd(*difference.values())
        for variable in sorted(difference, reverse=True):
            power = difference[variable] // divisor
            if abs(power) == 1:
                others = {v: -power * (p // divisor) for v, p in difference.items() if v != variable}
                self._bound[variable] = others
                return
        for variable in difference:
            self._bound[variable] = {}

    def _reduced(self, form: Form) -> Form:
        result: Form = {}
        for variable, power in form.items():
            result = _combined(result, self._root(variable), power)
        return result

    def _root(self, variable: int) -> Form:
        bound = self._bound.get(variable)
        if bound is None:
            return {variable: 1}
        reduced = self._reduced(bound)
        self._bound[variable] = reduced
        return reduced


def _combined(left: Form, right: Form, power: int) -> Form:
    """The form of left * right ** power."""
    result = dict(left)
    for variable, exponent in right.items():
        result[variable] = result.get(variable, 0) + power * exponent
    return {variable: exponent for variable, exponent in result.items() if exponent}


def _distinct_pairs(left: Tensor, right: Tensor) -> tuple[list[list[int]], Tensor, torch.Size]:
    """Each pair once, where every entry finds its pair, and the shape of the entries."""
    first, second = broadcast(left, right)
    stacked = torch.stack((first.reshape(-1), second.reshape(-1)), dim=1)
    pairs, positions = torch.unique(stacked, dim=0, return_inverse=True)
    return pairs.tolist(), positions, first.shape


def broadcast(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    return left + torch.zeros_like(right), right + torch.zeros_like(left)
