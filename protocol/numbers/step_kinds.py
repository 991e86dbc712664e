"""The kinds of steps: sgd, momentum, adam, adagrad and yogi, as they were published.

`move` changes a block of the widened model, and what is remembered of it, in place. Every line is one operation on a
whole block; none may be joined with another or left out, also where a factor is 1, since the order of operations is
what parties agree on.

* sgd: Robbins and Monro 1951. momentum: Polyak 1964, as the server's step Hsu, Qi and Brown 2019.
* adam: Kingma and Ba 2015, algorithm 1. adagrad: Duchi, Hazan and Singer 2011.
* With `tau`, adam and adagrad are the steps of Reddi et al. 2021 ("Adaptive federated optimization", algorithm 2):
  v starts at tau^2, nothing is corrected for its start, and tau stands in the place of eps. yogi is theirs always.

Implements specs/learning.md, section 4.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.numbers.rates import power
from veilsum.protocol.numbers.step_memory import Wide


@dataclass(frozen=True, eq=False)
class StepBlock:
    """What a kind works on: `wide` is the model, `count` the number of this step, counted from 1.

    `gradient` and `spare` may be overwritten; `kept` holds the remembered vectors as the step before left them.
    """

    wide: Wide
    gradient: Wide
    spare: Wide
    kept: Mapping[str, Wide]
    rate: float
    count: int


@dataclass(frozen=True)
class StepKind(ABC):
    """One kind with its settings, which are float64 numbers or pairs of them."""

    name: ClassVar[str]
    tau_is_optional: ClassVar[bool] = False
    """Whether tau may be 0, which is for the form without it."""

    def __post_init__(self) -> None:
        if problems := list(self.problems()):
            raise ParameterError([f"step {self.name}: {problem}" for problem in problems])

    @property
    def remembered(self) -> Mapping[str, float]:
        """The vectors that the step remembers, and what each of their values is before the first step."""
        return {}

    @abstractmethod
    def move(self, block: StepBlock) -> None: ...

    def problems(self) -> Iterator[str]:
        """Settings out of range."""
        for name, value in vars(self).items():
            match name:
                case "betas":
                    fine = len(value) == 2 and all(0 <= beta < 1 for beta in value)
                    wanted = "two numbers from 0 to below 1"
                case "momentum":
                    fine, wanted = 0 <= value < 1, "from 0 to below 1"
                case _:
                    fine = 0 < value < math.inf or (name == "tau" and value == 0 and self.tau_is_optional)
                    wanted = "a positive number"
            if not fine:
                yield f"{name} must be {wanted}, not {value}"

    def describe(self) -> dict[str, Any]:
        """The name and every setting, numbers exactly."""
        settings = {
            name: [float(one).hex() for one in (value if isinstance(value, tuple) else (value,))]
            for name, value in dataclasses.asdict(self).items()
        }
        return {"name": self.name, **settings}


@dataclass(frozen=True)
class Sgd(StepKind):
    name: ClassVar[str] = "sgd"

    def move(self, block: StepBlock) -> None:
        np.multiply(block.gradient, block.rate, out=block.spare)
        np.subtract(block.wide, block.spare, out=block.wide)


@dataclass(frozen=True)
class Momentum(StepKind):
    name: ClassVar[str] = "momentum"
    momentum: float = 0.9

    @property
    def remembered(self) -> Mapping[str, float]:
        return {"b": 0.0}

    def move(self, block: StepBlock) -> None:
        b = block.kept["b"]
        np.multiply(b, self.momentum, out=b)
        np.add(b, block.gradient, out=b)
        np.multiply(b, block.rate, out=block.spare)
        np.subtract(block.wide, block.spare, out=block.wide)


@dataclass(frozen=True)
class Adam(StepKind):
    name: ClassVar[str] = "adam"
    tau_is_optional: ClassVar[bool] = True
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    tau: float = 0.0

    @property
    def remembered(self) -> Mapping[str, float]:
        return {"m": 0.0, "v": self.tau * self.tau}

    def move(self, block: StepBlock) -> None:
        m, v, gradient, spare = block.kept["m"], block.kept["v"], block.gradient, block.spare
        first, second = self.betas
        _average(m, first, gradient, spare)
        np.multiply(gradient, gradient, out=gradient)
        _average(v, second, gradient, spare)
        if self.tau:
            _descend(block, m, Scaling(block.rate, 1.0, self.tau))
        else:
            rate = block.rate / (1.0 - power(first, block.count))
            root = math.sqrt(1.0 - power(second, block.count))
            _descend(block, m, Scaling(rate, root, self.eps))


@dataclass(frozen=True)
class Adagrad(StepKind):
    name: ClassVar[str] = "adagrad"
    tau_is_optional: ClassVar[bool] = True
    eps: float = 1e-10
    tau: float = 0.0

    @property
    def remembered(self) -> Mapping[str, float]:
        return {"v": self.tau * self.tau}

    def move(self, block: StepBlock) -> None:
        v = block.kept["v"]
        np.multiply(block.gradient, block.gradient, out=block.spare)
        np.add(v, block.spare, out=v)
        _descend(block, block.gradient, Scaling(block.rate, 1.0, self.tau or self.eps))


@dataclass(frozen=True)
class Yogi(StepKind):
    name: ClassVar[str] = "yogi"
    betas: tuple[float, float] = (0.9, 0.99)
    tau: float = 1e-3

    @property
    def remembered(self) -> Mapping[str, float]:
        return {"m": 0.0, "v": self.tau * self.tau}

    def move(self, block: StepBlock) -> None:
        m, v, gradient, spare = block.kept["m"], block.kept["v"], block.gradient, block.spare
        first, second = self.betas
        _average(m, first, gradient, spare)
        np.multiply(gradient, gradient, out=gradient)
        np.subtract(v, gradient, out=spare)
        np.sign(spare, out=spare)
        np.multiply(spare, gradient, out=spare)
        np.multiply(spare, 1.0 - second, out=spare)
        np.subtract(v, spare, out=v)
        _descend(block, m, Scaling(block.rate, 1.0, self.tau))


STEP_KINDS: Mapping[str, type[StepKind]] = {kind.name: kind for kind in (Sgd, Momentum, Adam, Adagrad, Yogi)}
MOST_REMEMBERED: Final = max(len(kind().remembered) for kind in STEP_KINDS.values())


@dataclass(frozen=True)
class Scaling:
    """The numbers of an adaptive step that are the same for all coordinates."""

    rate: float
    root: float
    floor: float


def _average(kept: Wide, beta: float, value: Wide, spare: Wide) -> None:
    """kept * beta + value * (1 - beta), in that order."""
    np.multiply(kept, beta, out=kept)
    np.multiply(value, 1.0 - beta, out=spare)
    np.add(kept, spare, out=kept)


def _descend(block: StepBlock, direction: Wide, scaling: Scaling) -> None:
    """wide - direction / (sqrt(v) / root + floor) * rate, in that order."""
    spare = block.spare
    np.sqrt(block.kept["v"], out=spare)
    np.divide(spare, scaling.root, out=spare)
    np.add(spare, scaling.floor, out=spare)
    np.divide(direction, spare, out=spare)
    np.multiply(spare, scaling.rate, out=spare)
    np.subtract(block.wide, spare, out=block.wide)
