"""Factor identifiers: union-find where there are no products, integer elimination where there are."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.perturbation.tracing.factors import FactorSpace

ONE = torch.zeros((), dtype=torch.int64)

pairs = st.tuples(st.integers(0, 7), st.integers(0, 7))


@settings(deadline=None)
@given(st.lists(pairs, max_size=12))
def test_equations_without_products_are_union_find(equations: list[tuple[int, int]]) -> None:
    """Two identifiers have equal factors for all draws exactly when a chain of equations joins them."""
    space = FactorSpace()
    space.fresh(7)
    groups = {i: {i} for i in range(8)}
    for left, right in equations:
        space.equate(torch.tensor(left), torch.tensor(right))
        merged = groups[left] | groups[right]
        groups.update(dict.fromkeys(merged, merged))
    table = space.solve()
    factors = table.evaluate(np.exp(np.sin(1.0 + np.arange(table.free))))
    for left in range(8):
        for right in range(8):
            assert math.isclose(factors[left], factors[right]) == (right in groups[left])


@settings(deadline=None)
@given(st.lists(st.tuples(pairs, pairs), max_size=6))
def test_equations_between_products_hold_for_every_draw(equations) -> None:
    space = FactorSpace()
    space.fresh(7)
    sides = []
    for left, right in equations:
        a = space.multiply(torch.tensor([left[0]]), torch.tensor([left[1]]))
        b = space.multiply(torch.tensor([right[0]]), torch.tensor([right[1]]))
        space.equate(a, b)
        sides.append((int(a), int(b)))
    table = space.solve()
    factors = table.evaluate(np.exp(np.sin(1.0 + np.arange(table.free))))
    assert factors[0] == 1.0
    for (left, right), (a, b) in zip(equations, sides, strict=True):
        assert math.isclose(factors[a], factors[left[0]] * factors[left[1]], rel_tol=1e-9)
        assert math.isclose(factors[a], factors[b], rel_tol=1e-9)
        assert math.isclose(factors[b], factors[right[0]] * factors[right[1]], rel_tol=1e-9)


def test_a_product_equal_to_one_of_its_sides_fixes_the_other_at_one() -> None:
    space = FactorSpace()
    left, right = space.fresh(2)
    space.equate(space.multiply(left[None], right[None]), left[None])
    table = space.solve()
    assert table.evaluate(np.full(table.free, 3.0)).tolist()[:3] == [1.0, 3.0, 1.0]


def test_an_equation_without_a_unit_coefficient_sets_its_factors_to_one() -> None:
    """a*a = b*b*b has only fractional solutions beside one; powers of two must stay powers of two."""
    space = FactorSpace()
    a, b = (identifier[None] for identifier in space.fresh(2))
    space.equate(space.multiply(a, a), space.multiply(b, space.multiply(b, b)))
    table = space.solve()
    assert table.free == 0
    assert set(table.evaluate(np.empty(0))) == {1.0}


def test_tying_a_dimension_makes_its_factors_equal() -> None:
    space = FactorSpace()
    tied = space.tie(space.fresh(6).reshape(1, 2, 3), (2,))
    assert tied.shape == (1, 2, 1)
    table = space.solve()
    assert table.free == 2
    factors = table.evaluate(np.array([2.0, 5.0]))[1:].reshape(2, 3)
    assert (factors == factors[:, :1]).all()
    space.equate(tied, ONE)
    assert space.solve().free == 0
