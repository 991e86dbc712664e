"""The learner that fits a task. Importing this file imports no torch; making a learner that trains does."""

from __future__ import annotations

from veilsum.roles.learner import Learner
from veilsum.roles.learning.splits import parse_split
from veilsum.roles.learning.task import Task
from veilsum.roles.learning.training import TrainingOptions
from veilsum.roles.learning.vectors import VectorLearner, VectorsTask


def make_learner(
    task: Task | VectorsTask, party_index: int, parties: int, split: str, options: TrainingOptions, seed: int
) -> Learner:
    """Party `party_index` of `parties`, counted from 0, with its part of the task's training set."""
    parsed = parse_split(split)
    if isinstance(task, VectorsTask):
        return VectorLearner(task, party_index, seed)
    from veilsum.roles.learning.learner import TorchLearner

    return TorchLearner(task, party_index, parties, parsed, options, seed)
