"""What a training run with clipped gradients and noise has spent: epsilon for a given delta.

Setting: a step draws every sample with probability `rate`, clips each gradient to norm C, adds noise of
standard deviation sigma * C to the sum. Two data sets are neighbours if one has one sample more.

Gaussian. The Renyi divergence of order a of one step is log A(a) / (a - 1) (Mironov, Talwar and Zhang, 2019),

    A(a) = mean of (1 - rate + rate exp((2 z - 1) / (2 sigma^2)))^a over normal z of deviation sigma
         = sum_k binomial(a, k) (1 - rate)^(a - k) rate^k exp((k^2 - k) / (2 sigma^2))   for whole a,

and steps add up. Whole orders use the sum. Fractional ones, which matter where epsilon is large, use the
mean, by the trapezoid rule on a grid of sigma / 64: the integrand is analytic and falls like a Gaussian, so
the rule is exact to rounding, and simpler than the alternating series of that paper. Conversion: epsilon =
divergence + log((a - 1) / a) - (log delta + log a) / (a - 1), the least over all orders (Balle et al., 2020).

Laplace. Gradients are clipped in the 1-norm; one step is log(1 + rate (exp(1 / sigma) - 1)), steps add up,
delta is 0.

Rejected: a library. See specs/decisions/0011-privacy-accounting.md, which also says with what these figures
were compared. Tighter accounting by the privacy loss distribution would save about a tenth of epsilon.

Implements specs/defences.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import ParameterError

_HIGHEST_ORDER = 1024
_LARGEST_EXPONENT = 700.0
_WHOLE_ORDERS = (*range(2, 64), *range(64, 128, 2), *range(128, 256, 8), *range(256, _HIGHEST_ORDER + 1, 32))
_FRACTIONS = tuple(tenth / 10 for tenth in range(11, 110) if tenth % 10)
_LEAST_SIGMA_OF_FRACTIONS = 0.05
_GRID = 64
_REACH = 12
_LOG_FACTORIAL = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, _HIGHEST_ORDER + 1)))])


@dataclass(frozen=True)
class PrivacyLoss:
    """A bound on what the presence of one sample changes: (epsilon, delta)-differential privacy."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.3g}, delta {self.delta:.3g}"


def gaussian_loss(rate: float, sigma: float, steps: int, delta: float) -> PrivacyLoss:
    """The loss after so many steps; `sigma` is the noise multiplier, in units of the clipping norm."""
    _require(rate, sigma, steps)
    if not 0 < delta < 1:
        raise ParameterError([f"delta must be between 0 and 1, not {delta}"])
    if steps == 0:
        return PrivacyLoss(0.0, delta)
    if sigma == 0:
        return PrivacyLoss(math.inf, delta)
    fractions = _FRACTIONS if sigma >= _LEAST_SIGMA_OF_FRACTIONS else ()
    orders = np.array([*fractions, *_WHOLE_ORDERS])
    divergences = steps * np.array([log_moment(rate, sigma, order) for order in orders]) / (orders - 1)
    epsilons = divergences + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return PrivacyLoss(max(0.0, float(epsilons.min())), delta)


def laplace_loss(rate: float, sigma: float, steps: int) -> PrivacyLoss:
    """The loss after so many steps with gradients clipped in the 1-norm."""
    _require(rate, sigma, steps)
    if steps == 0:
        return PrivacyLoss(0.0, 0.0)
    if sigma == 0:
        return PrivacyLoss(math.inf, 0.0)
    if 1 / sigma > _LARGEST_EXPONENT:
        return PrivacyLoss(steps / sigma, 0.0)
    return PrivacyLoss(steps * math.log1p(rate * math.expm1(1 / sigma)), 0.0)


def log_moment(rate: float, sigma: float, order: float) -> float:
    """log A(order) of one step."""
    if rate == 1:
        return order * (order - 1) / (2 * sigma**2)
    if order != int(order):
        return _log_moment_by_quadrature(rate, sigma, order)
    whole = int(order)
    k = np.arange(whole + 1, dtype=np.float64)
    binomial = _LOG_FACTORIAL[whole] - _LOG_FACTORIAL[: whole + 1] - _LOG_FACTORIAL[whole::-1]
    terms = binomial + (whole - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1) / (2 * sigma**2)
    return max(0.0, _log_sum_exp(terms))


def _log_moment_by_quadrature(rate: float, sigma: float, order: float) -> float:
    step = sigma / _GRID
    z = np.arange(-_REACH * sigma, order + _REACH * sigma, step)
    shifted = math.log(rate) + (2 * z - 1) / (2 * sigma**2)
    terms = order * np.logaddexp(math.log1p(-rate), shifted) - z**2 / (2 * sigma**2)
    return max(0.0, _log_sum_exp(terms) + math.log(step / (sigma * math.sqrt(2 * math.pi))))


def _log_sum_exp(terms: npt.NDArray[np.float64]) -> float:
    largest = float(terms.max())
    return largest + math.log(float(np.exp(terms - largest).sum()))


def _require(rate: float, sigma: float, steps: int) -> None:
    problems = []
    if not 0 < rate <= 1:
        problems.append(f"the sampling rate must be above 0 and at most 1, not {rate}")
    if not (math.isfinite(sigma) and sigma >= 0):
        problems.append(f"sigma must be a number from 0, not {sigma}")
    if steps < 0:
        problems.append(f"steps must be 0 or more, not {steps}")
    if problems:
        raise ParameterError(problems)
