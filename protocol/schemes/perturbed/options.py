"""The agreed settings of the perturbation, as they stand in `Parameters.options`: texts under names of their own.

Implements specs/federation-file.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.perturbation.settings import Alpha, Exchange, Loss, Mode, PerturbationSettings

KIND, GROUPS, GAMMA, ALPHA, EXCHANGE, BARRIER = (
    "perturbed.noise",
    "perturbed.groups",
    "perturbed.gamma",
    "perturbed.alpha",
    "perturbed.ce-exchange",
    "perturbed.barrier",
)

PERTURBATION_SETTINGS = ("noise", "groups", "gamma", "alpha", "ce_exchange", "barrier")
"""The settings of a federation that these options are made of, in the same order."""


def agree_on_perturbation(options: Mapping[str, str]) -> bool:
    """Whether a scheme with these options works on a perturbation of the task's model."""
    return KIND in options


def perturbation_options(
    kind: str, groups: int, gamma: float, alpha: str, ce_exchange: str, barrier: str
) -> dict[str, str]:
    return {
        KIND: kind,
        GROUPS: str(groups),
        GAMMA: repr(float(gamma)),
        ALPHA: alpha,
        EXCHANGE: ce_exchange,
        BARRIER: barrier,
    }


def read_settings(options: Mapping[str, str], loss: Loss = "mse") -> PerturbationSettings:
    """The settings, with every bound checked; what is not said has the default of `PerturbationSettings`."""
    default = PerturbationSettings(loss=loss)
    try:
        groups, gamma = (
            int(options.get(GROUPS, default.groups)),
            float(options.get(GAMMA, default.gamma)),
        )
    except ValueError as error:
        raise ParameterError([f"groups must be a whole number and gamma a number: {error}"]) from error
    return PerturbationSettings(
        mode=cast(Mode, options.get(KIND, default.mode)),
        loss=loss,
        groups=groups,
        gamma=gamma,
        alpha=cast(Alpha, options.get(ALPHA, default.alpha)),
        exchange=cast(Exchange, options.get(EXCHANGE, default.exchange)),
    )


def setting_problems(options: Mapping[str, str]) -> Iterator[str]:
    try:
        read_settings(options)
    except ParameterError as error:
        yield from error.problems
