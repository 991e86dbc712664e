"""The defences and their settings, as values without torch.

A setting knows its range; a defence knows what it fits and what it does not protect. `problems` is asked
before anything starts, `warnings` is printed once at the start: each says what is known to break the
defence, so that nobody takes a name for a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

Mechanism: TypeAlias = Literal["gaussian", "laplace"]
DEFAULT_DELTA = 1e-5
_SAFE_DEVIATIONS = {"gaussian": 6.0, "laplace": 20.0}


class Configuration(Protocol):
    """What a defence needs to know of a federation's configuration."""

    @property
    def scheme(self) -> str: ...
    @property
    def perturbs(self) -> bool: ...
    @property
    def task(self) -> str: ...
    @property
    def payload(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def clip(self) -> float: ...


@dataclass(frozen=True)
class Number:
    """A setting that is a number from `low` to `high`; with `above`, `low` itself is not allowed."""

    low: float
    high: float
    whole: bool = False
    above: bool = False

    @property
    def allowed(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {'above' if self.above else 'from'} {self.low:g} to {self.high:g}"

    def read(self, text: str) -> int | float:
        value = int(text) if self.whole else float(text)
        if not self.allows(value):
            raise ValueError(text)
        return value

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (
            math.isfinite(value) and self.low <= value <= self.high and not (self.above and value == self.low)
        )


@dataclass(frozen=True)
class Choice:
    """A setting that is one of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.words)}"

    def read(self, text: str) -> str:
        if not self.allows(text):
            raise ValueError(text)
        return text

    def allows(self, value: object) -> bool:
        return value in self.words


Rule: TypeAlias = Number | Choice
_SIGMA = Number(0, 1000)
_MECHANISM = Choice(get_args(Mechanism))


class Defence(Protocol):
    """One defence with its settings."""

    name: ClassVar[str]
    rules: ClassVar[Mapping[str, Rule]]
    required: ClassVar[tuple[str, ...]]

    def setting_problems(self) -> Iterator[str]:
        """Settings that do not go together."""

    def problems(self, config: Configuration) -> Iterator[str]:
        """Why it cannot work in this federation."""

    def warnings(self, config: Configuration) -> Iterator[str]:
        """What it does not protect against."""


@dataclass(frozen=True)
class Spn:
    """Secret polarization network: a private second head whose loss perturbs the shared gradients."""

    bits: int = 64
    alpha1: float = 1.0
    alpha2: float = 0.1
    margin: float = 1.0

    name: ClassVar[str] = "spn"
    rules: ClassVar[Mapping[str, Rule]] = {
        "bits": Number(1, 4096, whole=True),
        "alpha1": Number(0, 1, above=True),
        "alpha2": Number(0, 1),
        "margin": Number(1, 100),
    }
    required: ClassVar[tuple[str, ...]] = ()

    def setting_problems(self) -> Iterator[str]:
        return iter(())

    def problems(self, config: Configuration) -> Iterator[str]:
        return iter(())

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield (
            "spn stops attacks that do not know of it. The gradient of the shared head is not perturbed: "
            "labels and penultimate features can be read from it, and an attacker who treats the private "
            "term as unknown reconstructs single images"
        )


@dataclass(frozen=True)
class Dp:
    """Noise: on the uploaded change, or, with `clip`, on clipped gradients with an account of privacy."""

    sigma: float
    mechanism: Mechanism = "gaussian"
    clip: float | None = None
    delta: float | None = None

    name: ClassVar[str] = "dp"
    rules: ClassVar[Mapping[str, Rule]] = {
        "sigma": _SIGMA,
        "mechanism": _MECHANISM,
        "clip": Number(0, 1e6, above=True),
        "delta": Number(0, 0.5, above=True),
    }
    required: ClassVar[tuple[str, ...]] = ("sigma",)

    def setting_problems(self) -> Iterator[str]:
        if self.delta is not None and self.clip is None:
            yield "dp: delta needs clip: without clipping there is no account of privacy"
        if self.delta is not None and self.mechanism == "laplace":
            yield "dp: delta belongs to mechanism=gaussian: Laplace noise is accounted for with delta 0"

    def problems(self, config: Configuration) -> Iterator[str]:
        if self.clip is None:
            yield from _budget_problems("dp", self.sigma, self.mechanism, config)

    def warnings(self, config: Configuration) -> Iterator[str]:
        if self.clip is None:
            yield (
                f"dp without clip is noise, not differential privacy: no epsilon is claimed. {_on_change(self, config)}"
            )
        else:
            yield (
                "dp protects single samples, not a party's data as a whole, and counts one upload per round; "
                "how many samples a party holds is not protected"
            )


@dataclass(frozen=True)
class Ppdl:
    """Selective sharing: only the largest entries of the uploaded change, alone or with noise."""

    share: float
    sigma: float = 0.0
    mechanism: Mechanism = "gaussian"

    name: ClassVar[str] = "ppdl"
    rules: ClassVar[Mapping[str, Rule]] = {
        "share": Number(0, 1, above=True),
        "sigma": _SIGMA,
        "mechanism": _MECHANISM,
    }
    required: ClassVar[tuple[str, ...]] = ("share",)

    def setting_problems(self) -> Iterator[str]:
        return iter(())

    def problems(self, config: Configuration) -> Iterator[str]:
        yield from _budget_problems("ppdl", self.sigma, self.mechanism, config)

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield (
            "ppdl shows which entries it shares to whoever sees the upload, and an attacker who uses that "
            "reconstructs single images even from 5 % of the entries when there is little noise"
        )
        if self.sigma:
            yield f"ppdl adds noise without clipping: no epsilon is claimed. {_on_change(self, config)}"


@dataclass(frozen=True)
class Sketch:
    """CountSketch of layer inputs and weights, fresh in every round."""

    ratio: int = 2

    name: ClassVar[str] = "sketch"
    rules: ClassVar[Mapping[str, Rule]] = {"ratio": Number(1, 64, whole=True)}
    required: ClassVar[tuple[str, ...]] = ()

    def setting_problems(self) -> Iterator[str]:
        return iter(())

    def problems(self, config: Configuration) -> Iterator[str]:
        return iter(())

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield (
            "sketch uses a public sketch and leaves biases as they are: labels can be read from them, and a "
            f"sample that is used in more than {self.ratio} rounds can be put together again"
        )


DEFENCES: Mapping[str, type[Any]] = {one.name: one for one in (Spn, Dp, Ppdl, Sketch)}


def _budget_problems(name: str, sigma: float, mechanism: Mechanism, config: Configuration) -> Iterator[str]:
    """Noise that the fixed-point numbers cannot carry would end every round at its first large draw."""
    reach = _SAFE_DEVIATIONS[mechanism] * sigma
    if reach >= config.clip:
        yield (
            f"{name}: noise of sigma {sigma:g} reaches {reach:g}, beyond clip {config.clip:g} of [numbers]: "
            "lower sigma or raise clip"
        )


def _on_change(noise: Dp | Ppdl, config: Configuration) -> str:
    """The same noise in both units in which the literature quotes it."""
    if config.payload == "gradient":
        return f"Its scale is {noise.sigma:g} on the uploaded gradient"
    as_gradient = noise.sigma / config.learning_rate
    return (
        f"Its scale is {noise.sigma:g} on the uploaded change of the model, as much as {as_gradient:g} on the "
        f"gradient of one step at learning rate {config.learning_rate:g}"
    )
