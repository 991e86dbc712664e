"""The setting of a sketch, and when samples can be put together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from veilsum.roles.learning.defences.defence import Configuration, Defence, Reach, Trial
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.roles.learning.defences.ranges import Number, Rule

if TYPE_CHECKING:
    from veilsum.roles.learning.defences.guard import Guard


@dataclass(frozen=True)
class Sketch(Defence):
    """CountSketch of layer inputs and weights, fresh in every round."""

    ratio: int = 2

    name: ClassVar[str] = "sketch"
    rules: ClassVar[Mapping[str, Rule]] = {"ratio": Number(1, 64, whole=True)}
    form: ClassVar[str] = "sketch:ratio=2"
    reach: ClassVar[Reach] = Reach.LAYERS
    trial: ClassVar[Trial] = Trial("ratio=2", ("sketch-rounds",))

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield (
            "sketch uses a public sketch and leaves biases as they are: labels can be read from them, and a "
            f"sample that is used in more than {self.ratio} rounds can be put together again"
        )

    def guard(self, key: PrivateKey) -> Guard:
        from veilsum.roles.learning.defences.sketch.guard import SketchGuard

        return SketchGuard(self.ratio)
