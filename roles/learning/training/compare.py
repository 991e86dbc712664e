"""What a federation is compared with: all data in one place, and every party alone.

Both use the federation's own learner, options and seed. `central` is a federation of one party that holds
the whole training set; `standalone` is each party with its own part and nobody to average with.
"""

from __future__ import annotations

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
    (trained,) = train_standalone(task, 1, "iid", rounds, options, seed)
    return trained


def train_standalone(
    task: Task | VectorsTask, parties: int, split: str, rounds: int, options: TrainingOptions, seed: int
) -> list[Trained]:
    """Train every party on its own part; the list is in the order of the parties."""
    if isinstance(task, VectorsTask):
        raise TaskError("task vectors learns nothing: there is no central or standalone run to compare with")
    from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner

    parsed, optimizer = parse_split(split), make_step_optimizer(task, options, by_parties=False)
    return [
        train_alone(
            TorchLearner(LearnerParts(task, party, parties, parsed, options, seed)),
            rounds,
            options,
            optimizer,
        )
        for party in range(parties)
    ]


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
