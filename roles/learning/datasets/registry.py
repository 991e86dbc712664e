"""The tasks by name: the built-in ones, one line each, and a user's own in a module or a file.

Both are functions `(options: TaskOptions) -> Task` and come through the same door, each imported only when it is asked
for. Naming a task runs its code (roles/config/user_code.py says for whom).

Implements specs/tasks.md, section 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from veilsum.protocol.errors import ProtocolError
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.config.user_code import OWN, CodeAccess, UserCodeNotFound, load_named
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Samples, Task, TaskOptions

_DATASETS = "veilsum.roles.learning.datasets"
BUILT_IN = {
    "digits": f"{_DATASETS}.digits:digits",
    "synthetic-regression": f"{_DATASETS}.synthetic:synthetic_regression",
    "bank": f"{_DATASETS}.bank:bank",
    "mnist": f"{_DATASETS}.mnist:mnist",
    "cifar10": f"{_DATASETS}.cifar10:cifar10",
    "ham10000": f"{_DATASETS}.ham10000:ham10000",
}
VECTORS = "vectors"
_OWN_FORMS = "package.module:function, ./file.py:function"
TASK_FORMS = f"{', '.join(BUILT_IN)}, bank:with-duration, vectors:DIMENSION, {_OWN_FORMS}"


def load_task(name: str, options: TaskOptions, access: CodeAccess = OWN) -> Task | VectorsTask:
    """The task a user named: a built-in one, `vectors:D`, or a function of a module or a file."""
    base, colon, argument = name.partition(":")
    if base == VECTORS:
        return VectorsTask.parse(argument)
    if base in BUILT_IN:
        return _make(name, BUILT_IN[base], replace(options, argument=argument if colon else None), OWN)
    if not (base and argument) or "." in argument:
        raise unknown_task(name)
    return _make(name, name, options, access)


def unknown_task(name: str) -> TaskError:
    near = did_you_mean(name.partition(":")[0], (*BUILT_IN, VECTORS))
    return TaskError(f"unknown task {name!r}{near}; allowed: {TASK_FORMS}")


def _make(name: str, path: str, options: TaskOptions, access: CodeAccess) -> Task:
    try:
        code = load_named("task", path, access)
    except UserCodeNotFound as error:
        raise TaskError(f"{error}; allowed tasks: {TASK_FORMS}") from error
    function, function_name = code.value(), code.name
    if not callable(function):
        raise TaskError(f"task {name!r}: module {code.module.__name__} has no function {function_name}")
    try:
        return _require_task(name, function(options))
    except ProtocolError:
        raise
    except Exception as error:
        raise TaskError(
            f"task {name!r}: {function_name}(options) raised {type(error).__name__}: {error}; a task is a function "
            "that takes one TaskOptions and returns a Task"
        ) from error


def _require_task(name: str, task: Any) -> Task:
    wanted = ("train", "test", "build_model", "loss", "metrics")
    missing = [member for member in wanted if not hasattr(task, member)]
    if missing:
        raise TaskError(f"task {name!r} made a {type(task).__name__} without {', '.join(missing)}")
    for member in ("train", "test"):
        if not isinstance(getattr(task, member), Samples):
            raise TaskError(f"task {name!r}: {member} must be Samples(inputs, targets)")
    made: Task = task
    if made.train.input_shape != made.test.input_shape or made.train.targets.dtype != made.test.targets.dtype:
        raise TaskError(f"task {name!r}: training and test samples have different shapes or targets")
    return made
