"""Learners with and without defences on a task of a few random images, for tests of defences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import nn

from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.defences.learner import DefendedLearner
from veilsum.roles.learning.defences.parse import parse_defence
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.splits import Split
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner
from veilsum.roles.process.entropy import SeededEntropy

FAST = TrainingOptions(local_epochs=2, batch_size=8, payload="delta")
SEED = 7


def make_task(network: Callable[[], nn.Module] | None = None, count: int = 24) -> SupervisedTask:
    """A few random images of three classes."""
    rng = np.random.default_rng(1)
    data = Samples(rng.random((count, 1, 8, 8), dtype=np.float32), np.arange(count) % 3)
    return SupervisedTask(data, data, network or (lambda: build_model("mlp2:8", (1, 8, 8), 3)))


def defended(
    defence: str, options: TrainingOptions = FAST, task: SupervisedTask | None = None, secret: int = 1
) -> DefendedLearner:
    """The first of two parties with this defence; `secret` stands for the party's own entropy."""
    return DefendedLearner(_parts(options, task), parse_defence(defence), SeededEntropy(secret))


def undefended(options: TrainingOptions = FAST, task: SupervisedTask | None = None) -> TorchLearner:
    """The same party without a defence."""
    return TorchLearner(_parts(options, task))


def _parts(options: TrainingOptions, task: SupervisedTask | None) -> LearnerParts:
    return LearnerParts(task or make_task(), 0, 2, Split("iid"), options, SEED)
