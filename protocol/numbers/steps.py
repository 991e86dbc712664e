"""How a mean becomes the next model: a fixed sequence of float64 operations, the same bits on every machine.

    step.apply(model, memory, mean, round)  ->  next model, next memory

Parties that take the step themselves compare a hash of what comes out, and a hash has no tolerance. IEEE 754 fixes the
result of + - * / and sqrt to the last bit, so a step is a sequence of these, each one call on float64 arrays; the sign
of a number is exact, too. Nothing else is used: no fused or reduced operation, no BLAS, no power or exponential
of a library. Numbers that are the same for all coordinates (a rate, 1 - beta^t) are Python floats. The model is
widened, which is exact, and rounded to float32 once, half to even.

Work goes block by block in place: beside the next model and the next memory only a few blocks are held. Element-wise
results do not depend on the size of a block.

The mean of a payload `gradient` is the gradient g. Of a payload `delta` it is the negative one, as if the parties'
joint step were a gradient. Coordinates from `moved` on are running statistics and no parameters: they move as in
a step without a kind, which applies the mean as it is. A kind that remembers nothing leaves the memory empty.

Rejected: torch's optimisers, which fuse and reorder as their build and the processor allow; float32 arithmetic, which
would round at every operation; agreeing on a result within a tolerance, since the next round would start from models
that differ.

Implements specs/learning.md, section 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.rates import RateSchedule
from veilsum.protocol.numbers.step_kinds import StepBlock, StepKind
from veilsum.protocol.numbers.step_memory import MOST_STEPS, StepMemory, Wide

BLOCK = 1 << 15
PAYLOADS_OF_KINDS = ("gradient", "delta")
_SMALLEST = 5e-324


@dataclass(frozen=True)
class ModelStep:
    """Without a kind the mean is applied as it is, at `plain_rate` if it is a gradient.

    `rate` is that of the kind. `moved` is how many leading coordinates are parameters, None for all of them.
    """

    payload: str
    plain_rate: RateSchedule
    kind: StepKind | None = None
    rate: RateSchedule | None = None
    moved: int | None = None

    def __post_init__(self) -> None:
        if (self.kind is None) != (self.rate is None):
            raise LocalProtocolError("a step has a kind and its rate, or neither")
        if self.kind is not None and self.payload not in PAYLOADS_OF_KINDS:
            raise ParameterError(
                [f"step {self.kind.name} needs a mean gradient or delta, not payload {self.payload}"]
            )

    @property
    def remembers(self) -> bool:
        return self.kind is not None and bool(self.kind.remembered)

    def describe(self) -> str:
        """Canonical text of the settings, for the hash of what all agree on; `moved` follows from the model."""
        fields = {
            "kind": None if self.kind is None else self.kind.describe(),
            "payload": self.payload,
            "plain_rate": self.plain_rate.describe(),
            "rate": None if self.rate is None else self.rate.describe(),
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    def apply(
        self, model: Model, memory: StepMemory, mean: Wide, round_number: int
    ) -> tuple[Model, StepMemory]:
        """The next model and memory; the arguments are left as they are, also when the step is refused."""
        if mean.shape != model.shape:
            raise LocalProtocolError(f"the mean has shape {mean.shape}, the model {model.shape}")
        require_exact_arithmetic()
        border = self._border(len(model))
        updated = np.empty(len(model), dtype=np.float32)
        after = memory
        with np.errstate(all="ignore"):
            if self.kind is not None:
                after = self._move(model, memory, mean, round_number, updated[:border])
            self._apply_plainly(model, mean, round_number, updated, border)
        return updated, after

    def _border(self, size: int) -> int:
        """Where the coordinates begin that no kind moves."""
        if self.kind is None:
            return 0
        if self.moved is not None and not 0 <= self.moved <= size:
            raise LocalProtocolError(f"the step moves {self.moved} values, the model has {size}")
        return size if self.moved is None else self.moved

    def _move(
        self, model: Model, memory: StepMemory, mean: Wide, round_number: int, updated: Model
    ) -> StepMemory:
        assert self.kind is not None
        assert self.rate is not None
        kind, border = self.kind, len(updated)
        _require_memory_of(kind, memory, border)
        rate, count = self.rate.at(round_number), memory.count + 1
        after = StepMemory(count, {name: np.empty(border) for name in kind.remembered})
        widened, gradients, spares = np.empty((3, min(BLOCK, border)))
        for block in _blocks(0, border):
            size = block.stop - block.start
            wide, gradient, spare = widened[:size], gradients[:size], spares[:size]
            kept = {name: vector[block] for name, vector in after.vectors.items()}
            for name, vector in kept.items():
                np.copyto(vector, memory.vectors[name][block] if memory.count else kind.remembered[name])
            np.copyto(wide, model[block])
            if self.payload == "delta":
                np.negative(mean[block], out=gradient)
            else:
                np.copyto(gradient, mean[block])
            kind.move(StepBlock(wide, gradient, spare, kept, rate, count))
            if not all(np.isfinite(vector).all() for vector in kept.values()):
                raise _infinite()
            _round_into(updated[block], wide)
        return after if kind.remembered else memory

    def _apply_plainly(
        self, model: Model, mean: Wide, round_number: int, updated: Model, border: int
    ) -> None:
        rate = self.plain_rate.at(round_number)
        widened = np.empty(min(BLOCK, len(model) - border))
        for block in _blocks(border, len(model)):
            wide = widened[: block.stop - block.start]
            match self.payload:
                case "model":
                    np.copyto(wide, mean[block])
                case "delta":
                    np.add(model[block], mean[block], out=wide, dtype=np.float64)
                case "gradient":
                    np.multiply(mean[block], rate, out=wide, dtype=np.float64)
                    np.subtract(model[block], wide, out=wide, dtype=np.float64)
                case _:
                    raise LocalProtocolError(
                        f"unknown payload {self.payload!r}; allowed: model, delta, gradient"
                    )
            _round_into(updated[block], wide)


def require_exact_arithmetic() -> None:
    """Refuse a thread in which numbers below 2^-1022 count as zero, as some libraries set it for speed."""
    if np.multiply(np.full(1, _SMALLEST), 1.0)[0] == 0.0:
        raise LocalProtocolError(
            "this thread rounds tiny numbers to zero, so its step would differ from that of the other parties: undo "
            "torch.set_flush_denormal(True), or whatever else set it"
        )


def _blocks(start: int, stop: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK, stop)) for first in range(start, stop, BLOCK))


def _round_into(target: Model, wide: Wide) -> None:
    np.copyto(target, wide, casting="same_kind")
    if not np.isfinite(target).all():
        raise _infinite()


def _infinite() -> LocalProtocolError:
    return LocalProtocolError("the step makes the model infinite or NaN; the model was left as it was")


def _require_memory_of(kind: StepKind, memory: StepMemory, size: int) -> None:
    sizes = {name: len(vector) for name, vector in memory.vectors.items()}
    expected = dict.fromkeys(kind.remembered, size) if memory.count else {}
    if sizes != expected or (memory.count and not expected):
        raise LocalProtocolError(
            f"step {kind.name} remembers {expected or 'nothing yet'}, not {sizes or 'nothing'}: resume from a "
            "checkpoint of this run"
        )
    if memory.count == MOST_STEPS:
        raise LocalProtocolError("a memory counts no more steps: start a new run")
