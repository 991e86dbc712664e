"""A defence of one's own: every change is rounded to a coarse step before it leaves its party.

On a command line it is named as `--defence ./own_defence.py:Rounded:step=0.05`. What it is worth against an attack says
`veilsum audit run --scheme plain --defence ... --attack idlg` (specs/defences.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import veilsum
from veilsum.roles.learning.contract import FloatVector
from veilsum.roles.learning.defences.guard import ReleaseGuard, RoundWork
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.roles.learning.defences.ranges import Number, Rule

HERE = "veilsum.simulations.examples.own_defence"


@dataclass(frozen=True)
class Rounded(veilsum.Defence):
    """`step` is what every parameter's change is a multiple of."""

    step: float = 0.01

    name: ClassVar[str] = "rounded"
    rules: ClassVar[Mapping[str, Rule]] = {"step": Number(0, 1, above=True)}

    def guard(self, key: PrivateKey) -> RoundingGuard:
        return RoundingGuard(self.step)


class RoundingGuard(ReleaseGuard):
    def __init__(self, step: float) -> None:
        self._step = np.float32(step)

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        released = payload.copy()
        before = unchanged[: self.parameters]
        steps = np.round((payload[: self.parameters] - before) / self._step)
        released[: self.parameters] = before + self._step * steps
        return released


def main() -> None:
    for step in (0.01, 0.1, 0.5):
        config = veilsum.FederationConfig(
            scheme="masked", task="digits", rounds=2, seed=7, defence=f"{HERE}:Rounded:step={step}"
        )
        result = veilsum.simulate(config, compare="plain")
        undefended = result.figures()["baseline_metric"]
        print(
            f"step {step:4}: accuracy {result.metrics['accuracy']:.3f}, without the defence {undefended:.3f}"
        )


if __name__ == "__main__":
    main()
