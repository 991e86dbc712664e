"""The first model for a process that must not load torch: run as a program, it writes the model and ends.

    python -m veilsum.roles.learning.first_model FEDERATION.toml OUT SIGNED [DATA]

OUT gets the float32 numbers, little-endian, and OUT.json the shape of an input and the number of outputs. A server
needs the first model, or at least its length, and to record its view these shapes; half a gigabyte of torch in a
process that runs for weeks would be a high price for that. SIGNED has the SHA-256 of each file with code that the
settings name, as JSON: who asks has the organiser's signature on them, and other content is not run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from veilsum.protocol.errors import ParameterError, ProtocolError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.launch.ourselves import our_python
from veilsum.roles.learning.contract import FloatVector, Learner
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.factory import make_observing_learner
from veilsum.roles.learning.task import HoldsSamples, Task

MODULE = "veilsum.roles.learning.first_model"
TIMEOUT_S = 600.0
_NO_TASK, _NO_MODEL = 1, 2
"""How the process ends that could not load the task, or loaded it and could not make its model."""


@dataclass(frozen=True)
class Beginning:
    """The first model, and the shapes of what it takes and gives; nothing and 0 for a task without samples."""

    model: FloatVector = field(repr=False)
    input_shape: tuple[int, ...]
    outputs: int


def shapes_of(learner: Learner) -> tuple[tuple[int, ...], int]:
    """The shape of an input and the number of outputs."""
    return (learner.data.input_shape, learner.outputs) if isinstance(learner, HoldsSamples) else ((), 0)


def make_beginning(config: FederationConfig, data: Path | None) -> Beginning:
    """In this process; the same bytes at every party, whatever part of the data it holds."""
    return _beginning(config, load_task(config.task, config.task_options(data), config.code))


def _beginning(config: FederationConfig, task: Task | VectorsTask) -> Beginning:
    learner = make_observing_learner(config, task, "cpu")
    return Beginning(learner.initial_model(), *shapes_of(learner))


def ask_for_beginning(config: FederationConfig, file: Path, data: Path | None) -> Beginning:
    """From another process, unless the task needs no torch anyway."""
    if config.task_is_numbers:
        return make_beginning(config, data)
    with tempfile.TemporaryDirectory(prefix="veilsum-") as folder:
        target = Path(folder) / "model.f32"
        given = [str(data)] if data else []
        command = our_python(MODULE, str(file), str(target), _signed_code(config), *given)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 - ourselves
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["no reason given"]
            advice = "; give the task's data with --data, or a model with --init FILE"
            problem = f"the first model cannot be made here: {said[-1]}"
            raise ParameterError([problem if done.returncode == _NO_MODEL else problem + advice])
        shape, outputs = json.loads(_shapes_file(target).read_text())
        return Beginning(np.fromfile(target, dtype="<f4"), tuple(shape), outputs)


def _signed_code(config: FederationConfig) -> str:
    digests = config.code.digests
    return json.dumps(None if digests is None else dict(digests))


def _shapes_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def main(arguments: list[str]) -> int:
    file, target, signed, *data = arguments
    failed = _NO_TASK
    try:
        config = FederationConfig.from_toml(file).trusting_code(json.loads(signed))
        task = load_task(config.task, config.task_options(Path(data[0]) if data else None), config.code)
        failed = _NO_MODEL
        made = _beginning(config, task)
    except ProtocolError as error:
        sys.stderr.write(f"{error}\n")
        return failed
    np.ascontiguousarray(made.model, dtype="<f4").tofile(target)
    _shapes_file(Path(target)).write_text(json.dumps([made.input_shape, made.outputs]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
