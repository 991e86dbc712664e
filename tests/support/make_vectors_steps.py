"""Write the test vectors of the steps that every party can take, and of what they remember.

    python tests/support/make_vectors_steps.py

Deterministic: every input stands here or follows from SHAKE-256 of its own description. A test compares what `build()`
returns with what stands in the folder.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.make_vectors_numbers import Json, fixed_bytes
from veilsum.protocol.numbers.rates import RateSchedule
from veilsum.protocol.numbers.step_memory import StepMemory
from veilsum.protocol.numbers.steps import ModelStep
from veilsum.roles.learning.training.party_step import make_step
from veilsum.roles.learning.training.settings import TrainingOptions

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "v8"
OURS = (
    "Made by tests/support/make_vectors_steps.py; models and means are fractions from SHAKE-256 of 'veilsum vector: "
    "<name>', with zeros, a negative zero and tiny numbers in front."
)
DEFECT = "Made by tests/support/make_vectors_steps.py: a good memory with the one defect that the file is named after."
SIZE, MOVED, ROUNDS = 13, 11, 4
SPECIAL = (0.0, -0.0, 5e-324, -1e-310, 2.0**-149, 1.0)
STEPS = (
    ("sgd", "model", "constant"),
    ("sgd", "delta", "constant"),
    ("sgd", "gradient", "step:every=2,factor=0.3"),
    ("sgd:lr=0.3", "delta", "cosine:rounds=3"),
    ("momentum:lr=0.1", "delta", "constant"),
    ("momentum:momentum=0.5", "gradient", "step:every=1,factor=0.7"),
    ("adam", "gradient", "constant"),
    ("adam:lr=0.01,betas=0.8/0.99,eps=1e-6", "delta", "cosine:rounds=7"),
    ("adam:lr=0.01,tau=0.001", "delta", "constant"),
    ("adagrad", "gradient", "constant"),
    ("adagrad:lr=0.01,tau=0.001", "delta", "constant"),
    ("yogi:lr=0.01", "delta", "constant"),
    ("yogi:betas=0/0.5,tau=0.1", "gradient", "constant"),
)
RATES = (
    "constant",
    "step:every=3,factor=0.9",
    "step:every=1,factor=1e-3",
    "cosine:rounds=10",
    "cosine:rounds=1",
)


def build() -> dict[str, Json]:
    """Every generated file by name, without its suffix."""
    rates = [
        {
            "rate": rate.hex(),
            "schedule": form,
            "round": number,
            "at": RateSchedule(rate, form).at(number).hex(),
        }
        for form in RATES
        for rate in (0.1, 1.0)
        for number in (0, 1, 4, 9, 10, 2**40)
    ]
    return {
        "step": _file("step", [_step_case(*one) for one in STEPS]),
        "step_rate": _file("rate", rates),
        **_damaged(),
    }


def step_of(case: Json) -> ModelStep:
    options = TrainingOptions(
        payload=case["payload"],
        learning_rate=float.fromhex(case["learning_rate"]),
        schedule=case["schedule"],
        server_optimizer=case["step"],
    )
    return replace(make_step(options), moved=case["moved"])


def run_step(case: Json) -> Json:
    """The models and memories after each round."""
    step, memory = step_of(case), StepMemory()
    model: Any = np.frombuffer(bytes.fromhex(case["model"]), dtype="<f4")
    models, memories = [], []
    for number, mean in enumerate(case["means"]):
        values = np.frombuffer(bytes.fromhex(mean), dtype="<f8")
        model, memory = step.apply(model, memory, values, number)
        models.append(model.astype("<f4").tobytes().hex())
        memories.append(memory.encode().hex())
    return {"models": models, "memories": memories, "described": step.describe()}


def _step_case(step: str, payload: str, schedule: str) -> Json:
    case: Json = {
        "step": step,
        "payload": payload,
        "schedule": schedule,
        "learning_rate": (0.1).hex(),
        "moved": MOVED,
        "model": _fractions("step model").astype("<f4").tobytes().hex(),
        "means": [_fractions(f"step mean {number}").tobytes().hex() for number in range(ROUNDS)],
    }
    return {**case, **run_step(case)}


def _fractions(name: str) -> Any:
    """Numbers from -1 to below 1, special ones in front."""
    drawn = np.frombuffer(fixed_bytes(name, 8 * SIZE), dtype="<i8") / 2.0**63
    drawn[: len(SPECIAL)] = SPECIAL
    return drawn.astype("<f8")


def _damaged() -> dict[str, Json]:
    good = StepMemory(3, {"m": np.array([1.0, -0.0]), "v": np.array([0.5, 2.0])}).encode()
    head, first, second = good[:9], good[9:35], good[35:]
    defects = {
        "short": good[:-1],
        "leftover_bytes": good + b"\0",
        "order": head + second + first,
        "repeated": head + first + first,
        "not_finite": good[:-8] + np.array([np.nan], dtype="<f8").tobytes(),
    }
    return {
        f"step_memory_bad_{defect}": {
            "version": 8,
            "operation": "memory",
            "provenance": DEFECT,
            "error": "LocalProtocolError",
            "cases": [{"memory": content.hex()}],
        }
        for defect, content in defects.items()
    }


def _file(operation: str, cases: list[Json]) -> Json:
    return {"version": 8, "operation": operation, "provenance": OURS, "cases": cases}


def main() -> None:
    for name, content in build().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
