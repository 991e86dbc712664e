"""The example of the page about tasks is a task that learns, and the page names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from veilsum.roles.learning.datasets.registry import BUILT_IN, load_task
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.splits import Split
from veilsum.roles.learning.task import Samples, TaskOptions
from veilsum.roles.learning.training.compare import train_alone
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner

SPEC = Path(__file__).parents[3] / "specs" / "tasks.md"


def test_the_example_of_the_spec_is_a_task_of_about_twenty_lines_that_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"```python\n(.*?)```", SPEC.read_text(), re.DOTALL)
    assert example is not None
    assert len([line for line in example[1].splitlines() if line.strip()]) <= 20
    (tmp_path / "example_of_the_spec.py").write_text(example[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    task = load_task("example_of_the_spec:two_rings", TaskOptions(seed=3))
    options = TrainingOptions()
    assert not isinstance(task, VectorsTask)
    learner = TorchLearner(LearnerParts(task, 0, 2, Split("iid"), options, seed=3))
    assert train_alone(learner, 3, options).metrics["accuracy"] > 0.9


def test_the_example_of_reading_files_and_data_sets_reads_them(tmp_path: Path) -> None:
    _, example = re.findall(r"```python\n(.*?)```", SPEC.read_text(), re.DOTALL)
    (tmp_path / "train.csv").write_text("age,smoker,ill\n65,never,yes\n,former,no\n")
    made = {"Samples": Samples, "options": TaskOptions(data=tmp_path), "dataset": [([1.0, 2.0], 0)]}
    exec(example, made)
    train, images = made["train"], made["images"]
    assert isinstance(train, Samples)
    assert isinstance(images, Samples)
    assert train.inputs.tolist() == [[1, 1, 0, 0], [0, 0, 1, 0]]
    assert train.targets.tolist() == [1, 0]


def test_the_spec_lists_every_built_in_task_and_only_models_that_exist() -> None:
    text = SPEC.read_text()
    assert all(f"| `{name}`" in text for name in BUILT_IN)
    models = text.split("## 4. Models")[1].split("\n## ")[0]
    for name in re.findall(r"`([a-z]+[0-9]*(?:-[a-z]+)?)`", models):
        build_model(name, (3, 32, 32), 10)
