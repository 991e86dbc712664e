"""Tasks by name, from files and from modules of users: found, checked, or refused with what is allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.datasets.registry import BUILT_IN, load_task
from veilsum.roles.learning.datasets.supervised import (
    SupervisedTask,
    classification_metrics,
    regression_metrics,
)
from veilsum.roles.learning.datasets.vectors import VectorLearner, VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.factory import make_learner
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.task import Samples, Task, TaskOptions


def samples(count: int = 6, classes: int = 2) -> Samples:
    return Samples(np.ones((count, 3), np.float32), np.arange(count) % classes)


@pytest.mark.parametrize(
    "name", ["", "digit", "Digits", ":function", "module:", "package.module:class.method"]
)
def test_an_unknown_task_is_refused_with_the_allowed_ones(name: str) -> None:
    with refusal(LocalProtocolError, *BUILT_IN, "bank:with-duration", "vectors:DIMENSION"):
        load_task(name, TaskOptions())


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "bank"])
def test_a_task_without_variants_takes_nothing_after_a_colon(name: str) -> None:
    with refusal(LocalProtocolError, name, "'x'"):
        load_task(f"{name}:x", TaskOptions())


@pytest.mark.parametrize("name", ["bank", "mnist", "cifar10", "ham10000"])
def test_a_task_from_files_says_what_the_missing_folder_should_hold(name: str, tmp_path: Path) -> None:
    with refusal(LocalProtocolError, name, "--data"):
        load_task(name, TaskOptions())
    with refusal(LocalProtocolError, name, "folder", "hold"):
        load_task(name, TaskOptions(data=tmp_path / "absent"))
    with refusal(LocalProtocolError, name, "none"):
        load_task(name, TaskOptions(data=tmp_path))


def write_module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


def test_a_users_task_that_cannot_be_loaded_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "answer = 42\ndef nothing(options): return object()\n"
    write_module(tmp_path, monkeypatch, "users_broken_task", text)
    with refusal(LocalProtocolError, "no.such", "PYTHONPATH"):
        load_task("no.such:task", TaskOptions())
    with refusal(LocalProtocolError, "users_broken_task", "task"):
        load_task("users_broken_task:task", TaskOptions())
    with refusal(TaskError, "users_broken_task", "function", "answer"):
        load_task("users_broken_task:answer", TaskOptions())
    with refusal(LocalProtocolError, "train", "test", "build_model", "loss", "metrics"):
        load_task("users_broken_task:nothing", TaskOptions())


def test_a_users_task_with_samples_that_do_not_fit_each_other_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import numpy as np\n"
        "from veilsum.roles.learning.datasets.supervised import SupervisedTask\n"
        "from veilsum.roles.learning.task import Samples\n"
        "def rows(width): return Samples(np.ones((4, width), np.float32), np.zeros(4, np.int64))\n"
        "def shapes(options): return SupervisedTask(rows(2), rows(3), None)\n"
        "def arrays(options):\n"
        "    return type('T', (), dict.fromkeys(['train', 'test', 'build_model', 'loss', 'metrics']))()\n"
    )
    write_module(tmp_path, monkeypatch, "users_uneven_task", text)
    with refusal(LocalProtocolError, "training", "test", "shapes"):
        load_task("users_uneven_task:shapes", TaskOptions())
    with refusal(LocalProtocolError, "train", "Samples(inputs,"):
        load_task("users_uneven_task:arrays", TaskOptions())


def test_an_unknown_loss_is_refused() -> None:
    with refusal(ParameterError, "'hinge'", "ce", "mse"):
        TaskOptions(loss="hinge")  # type: ignore[arg-type] # the wrong value is the point


def test_samples_refuse_wrong_types_and_counts_together() -> None:
    with pytest.raises(ParameterError) as caught:
        Samples(np.full((3, 2), 0.1), np.full(4, 0.1))
    assert [problem.split()[0] for problem in caught.value.problems] == ["inputs", "targets"]
    with refusal(ParameterError, 3, 4):
        Samples(np.ones((3, 2)), np.ones(4))
    with pytest.raises(ParameterError, match="must be finite"):
        Samples(np.full((2, 2), np.nan, np.float32), np.zeros(2, np.int64))
    with pytest.raises(ParameterError, match="at least one"):
        Samples(np.ones((0, 2), np.float32), np.zeros(0, np.int64))


def test_vectors_need_a_dimension() -> None:
    assert load_task("vectors:1000", TaskOptions()) == VectorsTask(1000)
    for text in (
        "vectors",
        "vectors:",
        "vectors:0",
        "vectors:-1",
        "vectors:1e3",
        "vectors:9999999999",
        "vectors:²",
    ):
        with refusal(LocalProtocolError, "vectors:D"):
            load_task(text, TaskOptions())


def test_vectors_are_a_function_of_seed_party_and_round_within_one() -> None:
    learner = VectorLearner(VectorsTask(1000), 2, seed=7)
    model = learner.initial_model()
    update = learner.train(model, 3)
    assert abs(update.payload).max() <= 1
    assert update.payload.std() == pytest.approx(3**-0.5, rel=0.1)
    assert (
        update.payload.tobytes() == VectorLearner(VectorsTask(1000), 2, 7).train(model, 3).payload.tobytes()
    )
    others = [learner.train(model, 4), VectorLearner(VectorsTask(1000), 1, 7).train(model, 3)]
    assert all(other.payload.tobytes() != update.payload.tobytes() for other in others)
    assert learner.evaluate(model) == {}
    with refusal(LocalProtocolError, 3, 1000):
        learner.train(model[:3], 0)


def test_vectors_run_from_name_to_update_without_importing_torch() -> None:
    code = (
        "import sys\n"
        "from veilsum.roles.config.federation_config import FederationConfig\n"
        "from veilsum.roles.learning.factory import make_learner\n"
        "from veilsum.roles.learning.datasets.registry import load_task\n"
        "config = FederationConfig(task='vectors:5')\n"
        "learner = make_learner(config, load_task(config.task, config.task_options()), 'p1')\n"
        "learner.train(learner.initial_model(), 0)\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_factory_refuses_a_bad_split_for_every_task() -> None:
    with refusal(LocalProtocolError, "split", "'sorted'"):
        make_learner(FederationConfig(split="sorted"), VectorsTask(3), "p1")


def test_digits_are_real_balanced_and_whole(digits: Task) -> None:
    assert len(digits.train) + len(digits.test) == 1797
    assert digits.train.input_shape == (1, 8, 8)
    assert float(digits.train.inputs.min()) == 0.0
    assert float(digits.train.inputs.max()) == 1.0
    assert np.bincount(digits.test.targets).min() > 20
    seen = {image.tobytes() for image in digits.train.inputs}
    assert not any(image.tobytes() in seen for image in digits.test.inputs)


def test_the_test_set_does_not_depend_on_the_seed(digits: Task) -> None:
    other = load_task("digits", TaskOptions(seed=8))
    assert not isinstance(other, VectorsTask)
    assert other.test.inputs.tobytes() == digits.test.inputs.tobytes()


def test_synthetic_regression_is_a_function_of_the_seed() -> None:
    first, second, other = (load_task("synthetic-regression", TaskOptions(seed=s)) for s in (1, 1, 2))
    assert not any(isinstance(task, VectorsTask) for task in (first, second, other))
    assert first.train.targets.tobytes() == second.train.targets.tobytes()  # type: ignore[union-attr] # as asserted
    assert first.train.targets.tobytes() != other.train.targets.tobytes()  # type: ignore[union-attr] # as asserted


def test_the_user_chooses_model_and_loss() -> None:
    task = load_task("digits", TaskOptions(model="dlnet-relu", loss="mse"))
    assert isinstance(task, SupervisedTask)
    assert task.objective == "mse"
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in task.build_model().modules()) == 4


def test_squared_error_is_half_the_squared_distance_averaged_over_samples() -> None:
    task = SupervisedTask(samples(), samples(), lambda: build_model("mlp1", (3,), 2), "mse")
    outputs = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    one_hot = 0.5 * ((0 + 4) + (9 + 16)) / 2
    assert task.loss(outputs, torch.tensor([0, 1])).item() == one_hot
    assert task.loss(outputs[:, :1], torch.tensor([0, 1])).item() == 0.5 * (1 + 4) / 2
    assert task.loss(outputs[:, :1], torch.tensor([1.0, 1.0])).item() == 0.5 * (0 + 4) / 2


def test_cross_entropy_needs_labels_and_two_outputs() -> None:
    values = Samples(np.ones((2, 3), np.float32), np.ones(2, np.float32))
    with refusal(LocalProtocolError, "ce", "labels"):
        SupervisedTask(values, values, lambda: build_model("mlp1", (3,), 1), "ce")
    task = SupervisedTask(samples(), samples(), lambda: build_model("mlp1", (3,), 1), "ce")
    with refusal(LocalProtocolError, "two", "outputs"):
        task.loss(torch.ones(2, 1), torch.tensor([0, 1]))


def test_balanced_accuracy_weighs_classes_equally() -> None:
    outputs = np.array([[1.0, 0.0]] * 4)
    measured = classification_metrics(outputs, np.array([0, 0, 0, 1]))
    assert measured == {"accuracy": 0.75, "balanced_accuracy": 0.5}
    single = classification_metrics(np.array([[0.6], [0.4]]), np.array([1, 1]))
    assert single["accuracy"] == 0.5


def test_explained_variance_is_one_for_the_truth_and_zero_for_the_mean() -> None:
    targets = np.array([1.0, 2.0, 3.0], np.float32)
    assert regression_metrics(targets[:, None], targets) == {"r2": 1.0, "mse": 0.0}
    assert regression_metrics(np.full((3, 1), 2.0), targets)["r2"] == pytest.approx(0.0)
    assert regression_metrics(np.ones((3, 1)), np.ones(3, np.float32))["r2"] == 0.0
