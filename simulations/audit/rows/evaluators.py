"""Judges of classes that took no part in any federation: what does a rebuilt image show?"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.learning.task import Samples, Task
from veilsum.simulations.attacks.gradient.matching import Images
from veilsum.simulations.attacks.metrics import clamp
from veilsum.simulations.audit.request import BASELINE, Request
from veilsum.simulations.audit.stage import attackable_task, pixels

_STEPS, _MOST_SAMPLES = 200, 2000


def evaluator(task: Task, classes: Sequence[int], seed: int) -> nn.Module:
    """A small network trained on the test set's samples of these classes."""
    places = np.flatnonzero(np.isin(task.test.targets, classes))[:_MOST_SAMPLES]
    chosen: Samples = task.test.take(places)
    inputs, labels = torch.from_numpy(pixels(chosen)), torch.from_numpy(chosen.targets)
    outputs = int(task.train.targets.max()) + 1
    judge = build_model("mlp3:64", chosen.input_shape, outputs, seed=seed + 1)
    optimiser = torch.optim.Adam(judge.parameters(), lr=3e-3)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        torch.autograd.backward([functional.cross_entropy(judge(inputs), labels)])
        optimiser.step()
    return judge.eval()


def classes_shown(request: Request, images: Images) -> NDArray[np.int64]:
    """The class that an evaluator of all classes sees in each image."""
    judge = _judge(request.task, request.data, request.seed)
    with torch.no_grad():
        found: NDArray[np.int64] = (
            judge(torch.from_numpy(clamp(images).astype(np.float32))).argmax(dim=1).numpy()
        )
    return found


@functools.lru_cache(maxsize=4)
def _judge(task: str, data: str | None, seed: int) -> nn.Module:
    config = FederationConfig.from_options({"scheme": BASELINE, "task": task, "data": data, "seed": seed})
    whole = attackable_task(config)
    return evaluator(whole, range(int(whole.train.targets.max()) + 1), seed)
