"""Protected inference: a model with other weights that makes the true predictions, and how to predict with it.

Secret factors are multiplied into one layer and divided out of the next. Whoever holds the result can predict, copy
and fine-tune as with the true model; it only does not hold the true weights. See specs/perturbation.md.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.perturbation.tracing.trace import Barrier
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.learning.contract import FloatVector
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.model_files import layout_of, load_model
from veilsum.roles.learning.perturbation.traced_task import trace_model
from veilsum.roles.learning.task import Samples, Task
from veilsum.roles.learning.training.loop import Feed
from veilsum.roles.learning.training.vectorize import load_vector


def protected_model(plan: PerturbationPlan, model: Model, random: RandomBytes) -> Model:
    """A model that predicts what the given one does, under factors of its own."""
    key = new_key(plan, PerturbationSettings(mode="scale"), random)
    return with_parameters(model, key.perturb(parameters_of(plan, model), inference=True))


def protected_model_of_task(
    task: Task | VectorsTask, model: Model, seed: int, random: RandomBytes, barrier: Barrier = "refuse"
) -> Model:
    """The same for the model of a task; `UnsupportedModel` names the node that stands in the way."""
    if isinstance(task, VectorsTask):
        raise LocalProtocolError("task vectors has no model to perturb")
    return protected_model(trace_model(task, seed, barrier), model, random)


def parameters_of(plan: PerturbationPlan, model: Model) -> Reals:
    """The part of a vector that carries factors: buffers come behind it."""
    return model[: plan.size].astype(np.float64)


def with_parameters(model: Model, parameters: Reals) -> Model:
    replaced = np.array(model, dtype="<f4")
    replaced[: len(parameters)] = parameters
    return replaced


class Predictor:
    """A model from a safetensors file, the true one or a protected model, ready to predict."""

    def __init__(self, task: Task, model: FloatVector) -> None:
        self._module = task.build_model().eval()
        load_vector(self._module, model)

    @classmethod
    def load(cls, path: Path, task: Task) -> Predictor:
        return cls(task, load_model(path, layout_of(task)))

    def outputs(self, samples: Samples) -> npt.NDArray[np.float32]:
        """One row per sample."""
        feed = Feed(samples, torch.device("cpu"))
        with torch.no_grad():
            parts = [self._module(inputs).numpy() for inputs, _ in feed.chunks(np.arange(len(samples)))]
        found: npt.NDArray[np.float32] = np.concatenate(parts)
        return found
