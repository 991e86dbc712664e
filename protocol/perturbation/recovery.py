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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.errors import PrecisionLost
from veilsum.protocol.perturbation.key import NoiseKey
from veilsum.protocol.perturbation.layout import (
    BETA,
    GRADIENT,
    HEAD,
    MOMENTS,
    Vector,
    beta,
    psi,
    require_shapes,
    sigma,
    term_sizes,
)
from veilsum.protocol.perturbation.settings import CONDITION_LIMIT, UNIT_ROUNDOFF, USELESS_ERROR


@dataclass(frozen=True, eq=False)
class Recovered:
    """The true gradient in the order of the parameters, the true loss, and how well conditioned they are."""

    gradient: Reals
    loss: float
    condition: float
    moments: Reals | None
    warning: str | None


def recover(key: NoiseKey, aggregate: Mapping[str, Vector]) -> Recovered:
    """Undo the noise of one round. Raises `PrecisionLost` when nothing but rounding would come out."""
    require_shapes(term_sizes(key.plan, key.public), aggregate)
    gradient = aggregate[GRADIENT][:-1] * key.scale
    norms = {GRADIENT: _norm(gradient)}
    for coefficient, name in _body_coefficients(key):
        norms[name] = _accumulate(key, gradient, coefficient, aggregate[name])
    if key.settings.has_offset:
        norms[HEAD] = _correct_head(key, gradient, aggregate[HEAD])
    _require_finite(norms)
    condition = _condition(sum(norms.values()), _norm(gradient))
    _require_precision(key, condition)
    warning = None
    if condition > CONDITION_LIMIT:
        warning = (
            f"condition number {condition:.3g} is above {CONDITION_LIMIT:g}: the gradient has lost "
            f"{math.log10(condition):.0f} digits; gamma is lowered next round"
        )
    return Recovered(gradient, _loss(key, aggregate), condition, _moments(aggregate), warning)


def _body_coefficients(key: NoiseKey) -> Iterator[tuple[float, str]]:
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


def _accumulate(key: NoiseKey, gradient: Reals, coefficient: float, term: Vector) -> float:
    """Add one scaled body term; return the norm of what was added."""
    position, squares = 0, 0.0
    for place in key.plan.body_slices():
        length = place.stop - place.start
        summand = term[position : position + length] * key.scale[place]
        summand *= coefficient
        gradient[place] += summand
        squares += float(summand @ summand)
        position += length
    return math.sqrt(squares)


def _correct_head(key: NoiseKey, gradient: Reals, term: Vector) -> float:
    """The same for the last layer, from its low-rank terms."""
    head = key.plan.head
    if key.settings.loss == "mse":
        rows = np.outer(key.offset, term)
    else:
        joint = term[: head.outputs * (head.features + 1)].reshape(head.outputs, head.features + 1)
        rows = key.blinders[key.public.partition][:, None] * joint
    weight_place, bias_place = key.plan.head_slices()
    weight = rows[:, :-1].reshape(-1) * key.scale[weight_place]
    gradient[weight_place] -= weight
    squares = float(weight @ weight)
    if bias_place is not None:
        bias = rows[:, -1]
        gradient[bias_place] -= bias
        squares += float(bias @ bias)
    return math.sqrt(squares)


def _loss(key: NoiseKey, aggregate: Mapping[str, Vector]) -> float:
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


def _norm(vector: Reals) -> float:
    return math.sqrt(float(vector @ vector))


def _require_finite(norms: Mapping[str, float]) -> None:
    """A norm is finite exactly when the term is, up to values that no model survives."""
    for name, norm in norms.items():
        if not math.isfinite(norm):
            raise Rejection(AbortReason.BAD_VECTOR, f"the aggregate of {name} is not finite")


def _condition(total: float, result: float) -> float:
    if result == 0.0:
        return 1.0 if total == 0.0 else math.inf
    return total / result


def _require_precision(key: NoiseKey, condition: float) -> None:
    settings = key.settings
    if settings.has_offset and condition * UNIT_ROUNDOFF[settings.precision] > USELESS_ERROR:
        raise PrecisionLost(condition, settings.gamma, settings.adapted(condition).gamma)
