"""Noise that a defence adds to an upload: its mechanisms, how far it reaches, and in which units it is stated.

Implements specs/defences.md, sections 4 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, get_args

from veilsum.roles.learning.defences.defence import Configuration
from veilsum.roles.learning.defences.private import Mechanism
from veilsum.roles.learning.defences.ranges import Choice, Number

SIGMA = Number(0, 1000)
MECHANISM = Choice(get_args(Mechanism))
_SAFE_DEVIATIONS = {"gaussian": 6.0, "laplace": 20.0}


class Noisy(Protocol):
    """A defence with noise."""

    @property
    def name(self) -> str: ...
    @property
    def sigma(self) -> float: ...
    @property
    def mechanism(self) -> Mechanism: ...


def budget_problems(noisy: Noisy, config: Configuration) -> Iterator[str]:
    """Noise that the fixed-point numbers cannot carry would end every round at its first large draw."""
    reach = _SAFE_DEVIATIONS[noisy.mechanism] * noisy.sigma
    if reach >= config.clip:
        yield (
            f"{noisy.name}: noise of sigma {noisy.sigma:g} reaches {reach:g}, beyond clip {config.clip:g} of "
            "[numbers]: lower sigma or raise clip"
        )


def on_change(noisy: Noisy, config: Configuration) -> str:
    """The same noise in both units in which the literature quotes it."""
    if config.payload == "gradient":
        return f"Its scale is {noisy.sigma:g} on the uploaded gradient"
    as_gradient = noisy.sigma / config.learning_rate
    return (
        f"Its scale is {noisy.sigma:g} on the uploaded change of the model, as much as {as_gradient:g} on the "
        f"gradient of one step at learning rate {config.learning_rate:g}"
    )
