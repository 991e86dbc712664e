"""`vectors:D`: random vectors instead of training, to measure what a protocol costs. No torch.

Values are uniform in [-1, 1), so that they fit every clip of at least 1. A round's vector is a function of
the seed, the party and the round, and of the number of the checkpoint before it, if there was one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.contract import FloatVector, LocalUpdate, require_float_vector
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.seeds import again, generator

MAX_DIMENSION = 10**9


@dataclass(frozen=True)
class VectorsTask:
    """A task with nothing to learn: every party holds one vector of this dimension."""

    dimension: int

    @classmethod
    def parse(cls, text: str) -> VectorsTask:
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:12]) <= MAX_DIMENSION:
            raise TaskError(
                f"task 'vectors:{text}': write vectors:D with a whole number D from 1 to {MAX_DIMENSION}"
            )
        return cls(int(text))


class VectorLearner:
    """The learner of `vectors:D`: it implements `Learner` of roles/learning/contract.py."""

    def __init__(self, task: VectorsTask, party_index: int, seed: int, checkpoint: int = 0) -> None:
        self._dimension = task.dimension
        self._party = party_index
        self._seed = seed
        self._anew = again(checkpoint)

    def initial_model(self) -> FloatVector:
        return np.zeros(self._dimension, dtype=np.float32)

    def train(self, model: FloatVector, round: int) -> LocalUpdate:
        require_float_vector(model, "model")
        if model.size != self._dimension:
            raise LocalProtocolError(
                f"the model has {model.size} values, vectors of {self._dimension} were asked for"
            )
        stream = generator(self._seed, "vectors", self._party, round, *self._anew)
        vector = stream.random(self._dimension, dtype=np.float32)
        vector *= 2
        vector -= 1
        return LocalUpdate(vector, samples=1, loss=0.0)

    def evaluate(self, model: FloatVector) -> dict[str, float]:
        require_float_vector(model, "model")
        return {}
