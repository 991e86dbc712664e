"""How the mean of a round becomes the next model, and what is remembered from one round to the next.

Without an optimiser the step is `apply_update`, the same at every party. With one it also depends on earlier rounds:
`memory` holds, for each round, what the optimiser knew when that round began. An attempt that is repeated starts from
the same memory again, so an attempt that failed leaves no trace; what a checkpoint must keep is the entry of
the round that comes next. A round may close without a step, where rounding left nothing of its gradient: then model and
memory are those of before.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import shown_number
from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.contract import apply_update

if TYPE_CHECKING:
    from veilsum.roles.learning.training.settings import TrainingOptions


class StepOptimizer(Protocol):
    """A step as a pure function: in roles/learning/training, server_optimizer.py has torch's, party_step.py ours."""

    @property
    def remembers(self) -> bool:
        """Whether a step depends on those before it."""

    def step(
        self,
        model: Model,
        mean: NDArray[np.float64],
        round: int,
        memory: bytes,
    ) -> tuple[Model, bytes]: ...


@dataclass
class ServerStep:
    training: TrainingOptions
    optimizer: StepOptimizer | None = None
    memory: dict[int, bytes] = field(default_factory=dict, repr=False)

    def take(
        self, model: Model, memory: bytes, mean: NDArray[np.float64], round_number: int
    ) -> tuple[Model, bytes]:
        """The next model and memory from these, for a party that keeps both itself."""
        if self.optimizer is not None:
            return self.optimizer.step(model, mean, round_number, memory)
        training = self.training
        rate = training.learning_rate_at(round_number)
        return apply_update(model, mean, training.payload, rate), memory

    def apply(self, model: Model, mean: NDArray[np.float64] | None, round_number: int) -> Model:
        """The next model; the same arguments and memory give the same bytes."""
        training = self.training
        if self.optimizer is None:
            if mean is None:
                return model
            return apply_update(model, mean, training.payload, training.learning_rate_at(round_number))
        if self.optimizer.remembers and round_number > 0 and round_number not in self.memory:
            raise LocalProtocolError(
                f"round {shown_number(round_number)} needs what {training.server_optimizer} remembered of the rounds "
                "before: resume from a checkpoint of this run"
            )
        updated, after = model, self.memory.get(round_number, b"")
        if mean is not None:
            updated, after = self.optimizer.step(model, mean, round_number, after)
        self.memory[round_number + 1] = after
        for past in [round_ for round_ in self.memory if round_ < round_number]:
            del self.memory[past]
        return updated
