"""The tasks of all parties on one machine: one for all of them, or one for each that has a folder of its own.

Parties with folders of their own are measured on one test set, so that their figures mean the same: the test samples
of all folders, in the order of the parties. On machines of their own each party measures with its own test samples.

Implements specs/tasks.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from veilsum.roles.config.data_folders import DataFolders
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Array, Samples, Task

if TYPE_CHECKING:
    import torch

    from veilsum.roles.config.federation_config import FederationConfig


class TaskWithSamples:
    """A task with other samples; everything else is asked of the task itself."""

    def __init__(self, task: Task, train: Samples, test: Samples) -> None:
        self._task, self.train, self.test = task, train, test

    def build_model(self) -> torch.nn.Module:
        return self._task.build_model()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._task.loss(outputs, targets)

    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        return self._task.metrics(outputs, targets)

    def __getattr__(self, name: str) -> Any:
        """What else a task says of itself, such as which loss it has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._task, name)


def load_party_tasks(config: FederationConfig) -> Mapping[str, Task | VectorsTask]:
    """The task of every party: the very same one, unless each has its own folder."""
    config.require_data()
    own = _tasks_of_folders(config, config.data_folders)
    if not own:
        return dict.fromkeys(config.parties, load_task(config.task, config.task_options(), config.code))
    test = _joined(config, {name: task.test for name, task in own.items()})
    return {name: TaskWithSamples(task, task.train, test) for name, task in own.items()}


def load_pooled_task(config: FederationConfig, folders: DataFolders) -> Task | VectorsTask:
    """One task with the samples of all folders together."""
    own = _tasks_of_folders(config, folders)
    if not own:
        return load_task(config.task, config.task_options(folders.of(None)), config.code)
    test = _joined(config, {name: task.test for name, task in own.items()})
    return _with_all_training(config, own, test)


def pooled_task(config: FederationConfig, tasks: Mapping[str, Task | VectorsTask]) -> Task | VectorsTask:
    """One task with the training samples of all parties, from `load_party_tasks`."""
    own = {name: task for name, task in tasks.items() if isinstance(task, TaskWithSamples)}
    if not own:
        return next(iter(tasks.values()))
    return _with_all_training(config, own, next(iter(own.values())).test)


def _with_all_training(config: FederationConfig, tasks: Mapping[str, Task], test: Samples) -> Task:
    train = _joined(config, {name: task.train for name, task in tasks.items()})
    return TaskWithSamples(next(iter(tasks.values())), train, test)


def _tasks_of_folders(config: FederationConfig, folders: DataFolders) -> dict[str, Task]:
    """The task of each party that has a folder, in the order of the parties; none where a task has no samples."""
    tasks = {
        name: load_task(config.task, config.task_options(folders.of(name)), config.code)
        for name in sorted(folders.of_party)
    }
    return {name: task for name, task in tasks.items() if not isinstance(task, VectorsTask)}


def _joined(config: FederationConfig, parts: Mapping[str, Samples]) -> Samples:
    """All samples, one party after the other; refused with its name if a party's are of another form."""
    first, wanted = next(iter(parts.items()))
    for name, samples in parts.items():
        if _form(samples) != _form(wanted):
            raise TaskError(
                f"task {config.task}: the samples of {name} are {samples}, those of {first} {wanted}: parties need "
                "the same columns and types, so the task must not take them from a party's own rows"
            )
    return Samples.joined(parts.values())


def _form(samples: Samples) -> tuple[Any, ...]:
    inputs, targets = samples.inputs, samples.targets
    return inputs.dtype, inputs.shape[1:], targets.dtype, targets.shape[1:]
