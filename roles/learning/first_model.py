"""The model of round 0 for a process that must not load torch: run as a program, it writes the model and ends.

    python -m veilsum.roles.learning.first_model FEDERATION.toml OUT [DATA]

OUT gets the float32 numbers, little-endian. A server needs the first model, or at least its length, and nothing
else of the task; half a gigabyte of torch in a process that runs for weeks would be a high price for that.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from veilsum.protocol.errors import LocalProtocolError, ProtocolError
from veilsum.roles.config import FederationConfig
from veilsum.roles.learner import FloatVector
from veilsum.roles.learning.factory import make_learner
from veilsum.roles.learning.task import load_task

TIMEOUT_S = 600.0


def make_first_model(config: FederationConfig, data: Path | None) -> FloatVector:
    """In this process; the same bytes at every party, whatever part of the data it holds."""
    task = load_task(config.task, config.task_options(data))
    options = config.training_options(device="cpu")
    return make_learner(task, 0, len(config.parties), config.split, options, config.seed).initial_model()


def ask_for_first_model(config: FederationConfig, file: Path, data: Path | None) -> FloatVector:
    """From another process, unless the task needs no torch anyway."""
    if config.task.startswith("vectors:"):
        return make_first_model(config, data)
    with tempfile.TemporaryDirectory(prefix="veilsum-") as folder:
        target = Path(folder) / "model.f32"
        command = [sys.executable, "-m", __name__, str(file), str(target), *([str(data)] if data else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 - ourselves
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["no reason given"]
            raise LocalProtocolError(
                f"the first model cannot be made here: {said[-1]}; give the task's data with --data, or a model "
                "with --init FILE"
            )
        model: FloatVector = np.fromfile(target, dtype="<f4")
    return model


def main(arguments: list[str]) -> int:
    file, target, *data = arguments
    try:
        model = make_first_model(FederationConfig.from_toml(file), Path(data[0]) if data else None)
    except ProtocolError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    np.ascontiguousarray(model, dtype="<f4").tofile(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
