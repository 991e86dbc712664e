"""Where the parties of a simulation train: one class with `submit(training) -> result`.

An engine may train inline (the default) or in threads, but in this process: a learner keeps its defence's account and
private state from round to round, which a copy elsewhere would lose. It returns the update, or a future of it. Training
takes no virtual time: futures are collected in the order in which they were submitted before virtual time goes on, so
that a run does not depend on which of them is done first (specs/engines.md).
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import TrainingRequested
from veilsum.roles.learning.contract import Learner, LocalUpdate, train_as_asked


@dataclass(frozen=True)
class Training:
    """One party's local work in one round."""

    party: PartyId
    request: TrainingRequested = field(repr=False)
    learner: Learner = field(repr=False)

    @property
    def round(self) -> int:
        return self.request.round

    def run(self) -> LocalUpdate:
        """Train, here and now."""
        return train_as_asked(self.learner, self.request)


class TrainingEngine(Protocol):
    """Whoever trains for the parties of a simulation."""

    def submit(self, training: Training) -> LocalUpdate | Future[LocalUpdate]:
        """The update of `training.run()`, or a future of it."""


class InlineEngine:
    """Trains at once, in the simulation's own thread."""

    def submit(self, training: Training) -> LocalUpdate:
        return training.run()
