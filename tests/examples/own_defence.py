"""A defence from outside the package: `clipped-signs`, which shares the direction of every entry and not its size.

Every parameter of the uploaded change becomes one step up, one step down, or nothing. It is named as
`tests.examples.own_defence:ClippedSigns:step=0.01` and needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from veilsum.roles.learning.contract import FloatVector
from veilsum.roles.learning.defences.defence import Configuration, Defence, Trial
from veilsum.roles.learning.defences.guard import ReleaseGuard, RoundWork
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.roles.learning.defences.ranges import Number, Rule


@dataclass(frozen=True)
class ClippedSigns(Defence):
    """`step` is the size that every entry of the change is given."""

    step: float = 0.01

    name: ClassVar[str] = "clipped-signs"
    rules: ClassVar[Mapping[str, Rule]] = {"step": Number(0, 1, above=True)}
    trial: ClassVar[Trial] = Trial("step=0.01", ("idlg",), "idlg", "step", (0.001, 0.01, 0.1))

    def problems(self, config: Configuration) -> Iterator[str]:
        if self.step >= config.clip:
            yield f"clipped-signs: step {self.step:g} is beyond clip {config.clip:g} of [numbers]: lower it"

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield "clipped-signs hides sizes and shows every sign"

    def guard(self, key: PrivateKey) -> ClippedSignsGuard:
        return ClippedSignsGuard(self)


class ClippedSignsGuard(ReleaseGuard):
    def __init__(self, settings: ClippedSigns) -> None:
        self._step = settings.step

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        released = payload.copy()
        base = unchanged[: self.parameters]
        change = np.sign(payload[: self.parameters] - base)
        released[: self.parameters] = base + np.float32(self._step) * change
        return released


@dataclass(frozen=True)
class Impostor(Defence):
    """It calls itself by the name of a built-in defence, and is refused."""

    name: ClassVar[str] = "spn"
