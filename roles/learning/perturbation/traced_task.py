"""What all parties know about the perturbation of a task: its traced network and the agreed settings.

Both sides trace the task's own network, with the same plan at all parties. A vector lists parameters and then buffers;
the perturbation covers the parameters. Buffers are running statistics of batch normalisations: their factors are one,
so they are true, and the server pools the clients' moments into new ones.

Implements specs/perturbation.md, sections 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.layout import term_sizes
from veilsum.protocol.perturbation.algebra.losses import mean_loss
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.perturbation.tracing.trace import Barrier, trace
from veilsum.protocol.schemes.perturbed.options import read_settings
from veilsum.roles.learning.datasets.supervised import as_values
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.seeds import derive_seed
from veilsum.roles.learning.task import Task
from veilsum.roles.learning.training.determinism import deterministic
from veilsum.roles.learning.training.loop import Feed
from veilsum.roles.learning.training.vectorize import layout

if TYPE_CHECKING:
    from veilsum.roles.config.federation_config import FederationConfig


@dataclass(frozen=True, eq=False)
class TracedTask:
    """What all parties of a federation know about its perturbation: the traced model and the agreed settings."""

    plan: PerturbationPlan
    settings: PerturbationSettings

    @property
    def asks(self) -> bool:
        return self.settings.has_offset and self.settings.loss == "ce"

    @cached_property
    def terms(self) -> Mapping[str, int]:
        """Lengths follow from model and settings; the key, of which the public part is an example, does not matter."""
        return term_sizes(self.plan, new_key(self.plan, self.settings, bytes).public)

    @cached_property
    def statistics(self) -> Mapping[str, slice]:
        """Where the running statistics lie in a vector, by name."""
        norms = {norm.module for norm in self.plan.norms}
        return {
            entry.name: slice(entry.start, entry.stop)
            for entry in layout(self.plan.model)
            if entry.kind == "buffer" and entry.name.rpartition(".")[0] in norms
        }

    def warnings(self) -> Iterator[str]:
        """What the perturbation leaves open, and which parameters it does not cover."""
        yield self.settings.leak()
        yield from self.plan.warnings
        offset = {f"{self.plan.head.module}.weight"} if self.settings.has_offset else set()
        clear = [one.name for one in self.plan.report() if not one.perturbed and one.name not in offset]
        if clear:
            yield f"sent in clear: {', '.join(clear)}"


def trace_task(config: FederationConfig, task: Task | VectorsTask) -> TracedTask:
    """Trace the model and check the settings against it; `UnsupportedModel` names the node that stands in the way."""
    if isinstance(task, VectorsTask):
        raise TaskError(f"scheme {config.scheme}: task {config.task} has no model to perturb")
    loss: Any = getattr(task, "objective", None) or config.loss
    if loss not in ("mse", "ce"):
        raise ParameterError([f"task {config.task} does not say which of mse, ce its loss is: set loss"])
    settings = read_settings(config.parameters(1).options, loss)
    plan = trace_model(task, config.seed, cast(Barrier, config.barrier))
    settings.require_fits(plan)
    _require_same_loss(task, plan, settings)
    return TracedTask(plan, settings)


def _require_same_loss(task: Task, plan: PerturbationPlan, settings: PerturbationSettings) -> None:
    """Recovery expands one of two losses; a task that trains another would silently train on the wrong gradient."""
    few = np.arange(min(4, len(task.train)))
    _, targets = Feed(task.train, torch.device("cpu")).batch(few)
    outputs = torch.linspace(-1.0, 1.0, few.size * plan.head.outputs).reshape(few.size, -1)
    values = targets if settings.loss == "ce" else as_values(targets, outputs)
    own, expanded = float(task.loss(outputs, targets)), float(mean_loss(outputs, values, settings.loss))
    if not math.isclose(own, expanded, rel_tol=1e-4, abs_tol=1e-6):
        raise ParameterError(
            [
                f"the task's loss is not the {settings.loss} that can be recovered ({own:g}, not {expanded:g}): "
                "see specs/perturbation.md for both"
            ]
        )


def trace_model(task: Task, seed: int, barrier: Barrier = "refuse") -> PerturbationPlan:
    """The plan of a task's network, which passes its self-test here."""
    with deterministic(derive_seed(seed, "model"), torch.device("cpu")):
        module = task.build_model()
    example, _ = Feed(task.train, torch.device("cpu")).batch(np.zeros(1, dtype=np.int64))
    return trace(module, example, barrier=barrier)
