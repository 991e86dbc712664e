"""A defended learner whose private state is on disk before an update leaves the party.

Codes, private heads, noise keys and the account of what was spent must survive a restart: new codes would
weaken the training, and a second noise on the same update could be averaged with the first. So the state is
written after every round of training and before its result is handed on.

Implements specs/defences.md, section 2.
"""

from __future__ import annotations

from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.federation.private_files import read_private_file, replace_private_file
from veilsum.roles.learning.contract import FloatVector, Learner, LocalUpdate
from veilsum.roles.learning.factory import Defended

STATE_FILE = "defence.state"


class KeepingLearner:
    """A learner around a defended one: it implements `Learner` of roles/learning/contract.py."""

    def __init__(self, learner: Learner, file: Path, *, fresh: bool = False) -> None:
        if not isinstance(learner, Defended):
            raise LocalProtocolError("only a learner with a defence has a private state to keep")
        self._learner: Learner = learner
        self._defended: Defended = learner
        self._file = file
        if file.exists() and not fresh:
            learner.restore(read_private_file(file))
        else:
            self._keep()

    @property
    def inner(self) -> Learner:
        """The defended learner itself."""
        return self._learner

    def initial_model(self) -> FloatVector:
        return self._learner.initial_model()

    def train(self, model: FloatVector, round: int) -> LocalUpdate:
        update = self._learner.train(model, round)
        self._keep()
        return update

    def evaluate(self, model: FloatVector) -> dict[str, float]:
        return self._learner.evaluate(model)

    def notes(self, rounds: int) -> list[str]:
        return self._defended.notes(rounds)

    def _keep(self) -> None:
        replace_private_file(self._file, self._defended.state())
