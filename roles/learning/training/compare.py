"""What a federation is compared with: all data in one place, and every party alone.

Both use the federation's own learner, options and seed. `central` is a federation of one party that holds
the whole training set; `standalone` is each party with its own part and nobody to average with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilsum.roles.learning.contract import FloatVector, Learner
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.factory import make_step_optimizer
from veilsum.roles.learning.server_step import ServerStep, StepOptimizer
from veilsum.roles.learning.splits import parse_split
from veilsum.roles.learning.task import Task
from veilsum.roles.learning.training.settings import TrainingOptions


@dataclass(frozen=True, eq=False)
class Trained:
    """A final model and its metrics on the test set."""

    model: FloatVector
    metrics: dict[str, float]


def train_central(task: Task | VectorsTask, rounds: int, options: TrainingOptions, seed: int) -> Trained:
    """Train on the pooled data for as many rounds as the federation."""
    (trained,) = train_standalone([task], "iid", rounds, options, seed)
    return trained


def train_standalone(
    tasks: Sequence[Task | VectorsTask], split: str, rounds: int, options: TrainingOptions, seed: int
) -> list[Trained]:
    """Train every party on its own part, or on a task of its own; the list is in the order of the parties."""
    from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner

    parsed, trained = parse_split(split), []
    for party, task in enumerate(tasks):
        if isinstance(task, VectorsTask):
            raise TaskError(
                "task vectors learns nothing: there is no central or standalone run to compare with"
            )
        learner = TorchLearner(LearnerParts(task, party, len(tasks), parsed, options, seed))
        optimizer = make_step_optimizer(task, options, by_parties=False)
        trained.append(train_alone(learner, rounds, options, optimizer))
    return trained


def train_alone(
    learner: Learner, rounds: int, options: TrainingOptions, optimizer: StepOptimizer | None = None
) -> Trained:
    """The rounds of a federation with one member: its payload is the mean."""
    server_step = ServerStep(options, optimizer)
    model = learner.initial_model()
    for round_ in range(rounds):
        update = learner.train(model, round_)
        model = server_step.apply(model, update.payload.astype(np.float64), round_)
    return Trained(model, learner.evaluate(model))


def mean_metrics(trained: list[Trained]) -> dict[str, float]:
    """The mean of each metric over the parties."""
    names = trained[0].metrics
    return {name: sum(each.metrics[name] for each in trained) / len(trained) for name in names}
