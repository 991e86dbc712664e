"""What is agreed about the perturbation before the first round, with every bound checked.

Magnitudes follow from how recovery loses digits: its relative error is a few times the unit roundoff times a
condition number that grows as the square of gamma (and of the number of features when alpha is their sum).
Factors within [1/8, 8], alpha as a mean and gamma near one cost about what float32 costs by itself.

Implements specs/perturbation.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from veilsum.protocol.errors import ParameterError

if TYPE_CHECKING:
    from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan

Mode = Literal["scale+offset", "scale"]
Loss = Literal["mse", "ce"]
Alpha = Literal["mean", "sum"]
Exchange = Literal["log", "printed"]
Precision = Literal["float32", "float64"]

UNIT_ROUNDOFF: dict[Precision, float] = {"float32": 2.0**-24, "float64": 2.0**-53}

# Above this relative error a gradient has lost its meaning; well below it a warning is due.
USELESS_ERROR = 0.1
CONDITION_LIMIT = 1000.0
CONDITION_BAND = (10.0, 100.0)


@dataclass(frozen=True)
class PerturbationSettings:
    """`alpha` weighs the features by 1/n ("mean", stable) or by one ("sum", as published).

    `bit_exact` draws factors that are powers of two, so that scaling alone rounds nothing; it is meant for
    tests, because the mantissa of every weight then shows.
    """

    mode: Mode = "scale+offset"
    loss: Loss = "mse"
    groups: int = 1
    gamma: float = 1.0
    alpha: Alpha = "mean"
    exchange: Exchange = "log"
    factor_range: tuple[float, float] = (1 / 8, 8.0)
    bit_exact: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if problems := [*self._choice_problems(), *self._range_problems()]:
            raise ParameterError(problems)

    @property
    def has_offset(self) -> bool:
        return self.mode == "scale+offset"

    @property
    def fraction_bits(self) -> int:
        """Enough for masked sums in Z_2^64: rounding is multiplied by up to gamma squared in recovery."""
        return 40 if self.has_offset and self.gamma >= 10 else 32

    def require_fits(self, plan: PerturbationPlan) -> None:
        """Check what depends on the model."""
        if problems := list(self._model_problems(plan)):
            raise ParameterError(problems)

    def largest_gamma(self, features: int) -> float:
        """The offset beyond which the recovered gradient would be rounding noise."""
        amplification = features if self.alpha == "sum" else 1
        return math.sqrt(USELESS_ERROR / UNIT_ROUNDOFF[self.precision]) / amplification

    def adapted(self, condition: float) -> PerturbationSettings:
        """The settings of the next round: gamma moves until the condition number lies in its band.

        The condition number grows as gamma squared, and differs from key to key on small networks. So gamma
        falls fast, at most by a factor of four, and rises slowly, at most by a quarter.
        """
        low, high = CONDITION_BAND
        if not self.has_offset or low <= condition <= high:
            return self
        target = high if condition > high else low
        step = math.sqrt(target / condition) if math.isfinite(condition) else 0.25
        return replace(self, gamma=self.gamma * min(max(step, 0.25), 1.25))

    def leak(self) -> str:
        """One line on what the chosen perturbation does not hide, to be shown before a run."""
        if not self.has_offset:
            return (
                "noise 'scale' hides the sizes of weights from a client that does not analyse them; the "
                "model it holds computes the true predictions"
            )
        text = (
            "noise 'scale+offset' is obfuscation: a client removes the offset with its own labels by least "
            "squares, whatever gamma and the number of groups"
        )
        if self.loss == "ce":
            text += "; the cross-entropy exchange shows each sample's softmax to the server and to the client"
        return text

    def _choice_problems(self) -> Iterator[str]:
        for name, value, allowed in (
            ("mode", self.mode, get_args(Mode)),
            ("loss", self.loss, get_args(Loss)),
            ("alpha", self.alpha, get_args(Alpha)),
            ("exchange", self.exchange, get_args(Exchange)),
            ("precision", self.precision, get_args(Precision)),
        ):
            if value not in allowed:
                yield f"{name} {value!r} is not one of {', '.join(allowed)}"

    def _range_problems(self) -> Iterator[str]:
        low, high = self.factor_range
        if not (0 < low <= high and math.isfinite(high)):
            yield f"factor_range must satisfy 0 < low <= high, not {self.factor_range}"
        elif self.bit_exact and math.floor(math.log2(high)) < math.ceil(math.log2(low)):
            yield f"factor_range {self.factor_range} contains no power of two for bit_exact"
        if not (math.isfinite(self.gamma) and self.gamma > 0):
            yield f"gamma must be positive, not {self.gamma}; leave the offset out with noise 'scale'"
        if self.groups < 1:
            yield f"groups must be at least 1, not {self.groups}"

    def _model_problems(self, plan: PerturbationPlan) -> Iterator[str]:
        if not self.has_offset:
            return
        if self.groups > plan.head.outputs:
            yield f"{self.groups} groups do not fit {plan.head.outputs} outputs; use at most one each"
        if self.loss == "ce" and plan.head.outputs == 1:
            yield "cross entropy needs at least two outputs; use the mse loss for one"
        limit = self.largest_gamma(plan.head.features)
        if self.gamma > limit:
            remedy = f"use at most {limit:.3g}" + (", or alpha 'mean'" if self.alpha == "sum" else "")
            yield (
                f"gamma {self.gamma:g} would lose all precision in {self.precision}, alpha being the "
                f"{self.alpha} of {plan.head.features} features; {remedy}"
            )
