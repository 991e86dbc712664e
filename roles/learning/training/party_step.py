"""The step that every party can take itself, from the settings: `sgd`, `momentum`, `adam`, `adagrad` or `yogi`.

The arithmetic is in protocol/numbers/steps.py, the same bits on every machine. No torch.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.rates import RateSchedule
from veilsum.protocol.numbers.step_kinds import STEP_KINDS, StepKind
from veilsum.protocol.numbers.step_memory import StepMemory
from veilsum.protocol.numbers.steps import ModelStep
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.learning.training.pairs import read_pairs
from veilsum.roles.learning.training.settings import TrainingOptions


@dataclass(frozen=True)
class PartyStep:
    """A step whose memory is kept as bytes: a `StepOptimizer` of roles/learning/server_step.py."""

    taken: ModelStep

    @property
    def remembers(self) -> bool:
        return self.taken.remembers

    def step(self, model: Model, mean: NDArray[np.float64], round: int, memory: bytes) -> tuple[Model, bytes]:
        updated, after = self.taken.apply(model, StepMemory.decode(memory), mean, round)
        return updated, after.encode()


def make_step(options: TrainingOptions, moved: int | None = None) -> ModelStep:
    """The step that the options ask for; `moved` is how many leading values of the model are parameters."""
    plain = RateSchedule(options.learning_rate, options.schedule)
    if not options.steps_with_optimizer:
        return ModelStep(options.payload, plain)
    kind, own_rate = read_step(options.server_optimizer)
    if options.payload == "delta" and own_rate is None:
        raise ParameterError(
            [
                f"server_optimizer {options.server_optimizer} on payload delta needs a rate of its own: add lr, as in "
                f"{kind.name}:lr=0.01"
            ]
        )
    rate = plain if own_rate is None else RateSchedule(own_rate, options.schedule)
    return ModelStep(options.payload, plain, kind, rate, moved)


def read_step(text: str) -> tuple[StepKind, float | None]:
    """The kind with its settings, and the rate if one is among them, from a text like `adam:lr=0.01,betas=0.9/0.99`."""
    name, _, settings = text.partition(":")
    if name not in STEP_KINDS:
        raise ParameterError(
            [
                f"server_optimizer {name!r} is not a step that every party can take to the same bits"
                f"{did_you_mean(name, STEP_KINDS)}: choose one of {', '.join(STEP_KINDS)}; torch's "
                "optimisers are for schemes whose server takes the step alone: plain, perturbed, bilateral"
            ]
        )
    kind = STEP_KINDS[name]
    defaults: dict[str, Any] = {one.name: one.default for one in dataclasses.fields(kind)}
    found = read_pairs(name, settings, {"lr": 0.0, **defaults})
    if {"eps", "tau"} <= found.keys():
        raise ParameterError([f"{name}: tau stands in the place of eps: give one of them"])
    rate = found.pop("lr", None)
    if rate is not None and not 0 < rate < float("inf"):
        raise ParameterError([f"{name}: lr must be a positive number, not {rate}"])
    return kind(**found), rate
