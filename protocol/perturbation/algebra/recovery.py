"""From the aggregate of the clients' terms to the true gradient and the true loss.

The true loss is a polynomial in the secrets whose coefficients clients can compute without knowing them.
With e the perturbed error, r the secret offset and alpha as in `key`, half the squared error is

    |e - alpha r|^2 / 2  =  |e|^2 / 2  -  sum over groups of gamma * S  +  |r|^2 * alpha^2 / 2,

where S is alpha times the inner product of e with the group's direction. Differentiate each coefficient with
respect to the perturbed parameters, combine, and multiply by the scale: that is the true gradient, for any
model whose features carry factors. For cross entropy the server lets the client use a = p + xi * b in place
of the true softmax p (see `exchange`), and the terms of a and b combine in the same way.

The combination cancels. Its condition number, the sum of the norms of all summands over the norm of the
result, says by how much: the relative error is a few unit roundoffs times it. It is computed here from the
aggregate itself, every round, so that gamma can follow it.

Implements specs/perturbation.md, sections 3 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.algebra.key import PerturbationKey
from veilsum.protocol.perturbation.algebra.layout import (
    BETA,
    BLOCK,
    GRADIENT,
    HEAD,
    MOMENTS,
    Vector,
    beta,
    psi,
    require_shapes,
    sigma,
    sum_of_squares,
    term_sizes,
)
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.errors import PrecisionLost
from veilsum.protocol.perturbation.settings import CONDITION_LIMIT, UNIT_ROUNDOFF, USELESS_ERROR


@dataclass(frozen=True, eq=False)
class RecoveredGradient:
    """The true gradient in the order of the parameters, the true loss, and how well conditioned they are."""

    gradient: Reals
    loss: float
    condition: float
    moments: Reals | None
    warning: str | None


def recover(
    key: PerturbationKey, aggregate: Mapping[str, Vector], destination: Reals | None = None
) -> RecoveredGradient:
    """Undo the perturbation of one round. Raises `PrecisionLost` when nothing but rounding would come out.

    The gradient is written to `destination`, if that is given.
    """
    require_shapes(term_sizes(key.plan, key.public), aggregate)
    gradient = np.empty(key.plan.size) if destination is None else destination
    combination = _Combination(key, aggregate, gradient)
    # Values that are not finite are looked for once, in the sums of squares.
    with np.errstate(all="ignore"):
        combination.add_body()
        combination.add_head()
    _require_finite(combination.summands)
    condition = _condition(sum(map(math.sqrt, combination.summands.values())), math.sqrt(combination.result))
    _require_precision(key, condition)
    warning = None
    if condition > CONDITION_LIMIT:
        warning = (
            f"condition number {condition:.3g} is above {CONDITION_LIMIT:g}: the gradient has lost "
            f"{math.log10(condition):.0f} digits; gamma is lowered next round"
        )
    return RecoveredGradient(gradient, _loss(key, aggregate), condition, _moments(aggregate), warning)


def _body_coefficients(key: PerturbationKey) -> Iterator[tuple[float, str]]:
    """By how much each body term enters the true gradient."""
    if not key.settings.has_offset:
        return
    for group, gamma in enumerate(key.gammas):
        yield -float(gamma), sigma(group)
    if key.settings.loss == "mse":
        yield float(key.offset @ key.offset), BETA
        return
    for group, (gamma, blinder) in enumerate(zip(key.gammas, key.blinders, strict=True)):
        yield float(gamma * blinder), beta(group)
        yield -float(blinder), psi(group)


class _Combination:
    """The gradient as it is put together, and the sums of squares of the summands and of the result.

    Work goes block by block: summands are scaled, measured and added while the block is in the processor's cache.
    """

    def __init__(self, key: PerturbationKey, aggregate: Mapping[str, Vector], gradient: Reals) -> None:
        self._key = key
        self._aggregate = aggregate
        self._gradient = gradient
        self._coefficients = list(_body_coefficients(key))
        self._scratch = np.empty(min(BLOCK, key.plan.size))
        self.summands = dict.fromkeys((GRADIENT, *(name for _, name in self._coefficients)), 0.0)
        self.result = 0.0

    def add_body(self) -> None:
        position = 0
        for place in self._key.plan.body_slices():
            for start in range(place.start, place.stop, BLOCK):
                block = slice(start, min(start + BLOCK, place.stop))
                self._add_block(block, position)
                position += block.stop - block.start

    def _add_block(self, block: slice, position: int) -> None:
        target, scale = self._start(block), self._key.scale[block]
        summand = self._scratch[: len(target)]
        for coefficient, name in self._coefficients:
            term = self._aggregate[name][position : position + len(target)]
            np.multiply(term, scale, out=summand)
            summand *= coefficient
            self.summands[name] += sum_of_squares(summand)
            target += summand
        self.result += sum_of_squares(target)

    def _start(self, block: slice) -> Reals:
        """Put the first summand, the scaled gradient of the perturbed loss, in its place."""
        target = self._gradient[block]
        np.multiply(self._aggregate[GRADIENT][block], self._key.scale[block], out=target)
        self.summands[GRADIENT] += sum_of_squares(target)
        return target

    def add_head(self) -> None:
        """The same for the last layer, from its low-rank terms."""
        weight_place, bias_place = self._key.plan.head_slices()
        targets = [self._start(place) for place in (weight_place, bias_place) if place is not None]
        if self._key.settings.has_offset:
            rows = _head_correction(self._key, self._aggregate[HEAD])
            weight = rows[:, :-1].reshape(-1) * self._key.scale[weight_place]
            corrections = [weight, rows[:, -1]][: len(targets)]
            self.summands[HEAD] = sum(map(sum_of_squares, corrections))
            for target, correction in zip(targets, corrections, strict=True):
                target -= correction
        self.result += sum(map(sum_of_squares, targets))


def _head_correction(key: PerturbationKey, term: Vector) -> Reals:
    """What the offset adds to the head, one row per output, the bias last."""
    if key.settings.loss == "mse":
        return np.outer(key.offset, term)
    head = key.plan.head
    joint = term[: head.outputs * (head.features + 1)].reshape(head.outputs, head.features + 1)
    corrected: Reals = key.blinders[key.public.partition][:, None] * joint
    return corrected


def _loss(key: PerturbationKey, aggregate: Mapping[str, Vector]) -> float:
    loss = float(aggregate[GRADIENT][-1])
    if not key.settings.has_offset:
        return loss
    linear = sum(float(gamma * aggregate[sigma(s)][-1]) for s, gamma in enumerate(key.gammas))
    if key.settings.loss == "mse":
        return loss - linear + float(key.offset @ key.offset) * float(aggregate[BETA][-1])
    if key.settings.exchange == "log":
        return loss + linear - key.loss_shift
    return loss - float(key.shifts @ aggregate[HEAD][-key.plan.head.outputs :])


def _moments(aggregate: Mapping[str, Vector]) -> Reals | None:
    return np.asarray(aggregate[MOMENTS], dtype=np.float64) if MOMENTS in aggregate else None


def _require_finite(squares: Mapping[str, float]) -> None:
    """A sum of squares is finite exactly when the term is, up to values that no model survives."""
    for name, square in squares.items():
        if not math.isfinite(square):
            raise Rejection(AbortReason.BAD_VECTOR, f"the aggregate of {name} is not finite")


def _condition(total: float, result: float) -> float:
    if result == 0.0:
        return 1.0 if total == 0.0 else math.inf
    return total / result


def _require_precision(key: PerturbationKey, condition: float) -> None:
    settings = key.settings
    if settings.has_offset and condition * UNIT_ROUNDOFF[settings.precision] > USELESS_ERROR:
        raise PrecisionLost(condition, settings.gamma, settings.adapted(condition).gamma)
