"""Every vector of the steps holds for our code and for scalar arithmetic that knows nothing of numpy."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tests.support.make_vectors_steps import FOLDER, build, run_step
from tests.support.scalar_steps import ScalarStep, scalar_rate
from veilsum.protocol import errors
from veilsum.protocol.numbers.rates import RateSchedule
from veilsum.protocol.numbers.step_memory import StepMemory

FILES = sorted(FOLDER.glob("step*.json"))

Case = dict[str, Any]


def rate(case: Case) -> Case:
    return {"at": RateSchedule(float.fromhex(case["rate"]), case["schedule"]).at(case["round"]).hex()}


def scalar_rate_of(case: Case) -> Case:
    return {"at": scalar_rate(float.fromhex(case["rate"]), case["schedule"], case["round"]).hex()}


def run_scalar_step(case: Case) -> Case:
    name, _, text = case["step"].partition(":")
    settings = {
        key: tuple(float(one) for one in value.split("/")) if key == "betas" else float(value)
        for key, _, value in (pair.partition("=") for pair in filter(None, text.split(",")))
    }
    learning_rate = float.fromhex(case["learning_rate"])
    own = settings.pop("lr", learning_rate)
    step = ScalarStep(None if case["step"] == "sgd" else name, settings, case["payload"], case["moved"])
    raw = bytes.fromhex(case["model"])
    model = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    models, memories = [], []
    for number, text in enumerate(case["means"]):
        mean = struct.unpack(f"<{len(model)}d", bytes.fromhex(text))
        rates = (scalar_rate(one, case["schedule"], number) for one in (own, learning_rate))
        model = step.apply(model, mean, *rates)
        models.append(struct.pack(f"<{len(model)}f", *model).hex())
        memories.append(step.memory().hex())
    return {"models": models, "memories": memories}


OURS = {"step": run_step, "rate": rate}
SECOND = {"step": run_scalar_step, "rate": scalar_rate_of}


def cases_of(*, bad: bool) -> list[Any]:
    return [
        pytest.param(content, case, id=f"{path.stem}-{position}")
        for path in FILES
        for content in [json.loads(path.read_text())]
        for position, case in enumerate(content["cases"])
        if ("error" in content) == bad
    ]


@pytest.mark.parametrize(("content", "case"), cases_of(bad=False))
@pytest.mark.parametrize("implementations", [OURS, SECOND], ids=["ours", "second"])
def test_a_good_vector_of_a_step_gives_its_bits(implementations: Any, content: Case, case: Case) -> None:
    found = implementations[content["operation"]](case)
    assert found == {key: case[key] for key in found}


@pytest.mark.parametrize(("content", "case"), cases_of(bad=True))
def test_a_damaged_memory_gives_its_error(content: Case, case: Case) -> None:
    with pytest.raises(getattr(errors, content["error"])):
        StepMemory.decode(bytes.fromhex(case["memory"]))


@pytest.mark.parametrize(("name", "content"), build().items())
def test_the_folder_holds_what_the_maker_of_steps_writes(name: str, content: Case) -> None:
    assert json.loads((FOLDER / f"{name}.json").read_text()) == content
