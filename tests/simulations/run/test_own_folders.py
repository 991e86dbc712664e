"""Parties with folders of their own: each trains on its own rows, and all are measured on one test set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.launches import run_veilsum
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.cli.main import main
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.own_data import load_party_tasks
from veilsum.roles.learning.task import HoldsSamples, Samples
from veilsum.simulations.run.simulate import simulate

TASK = """
from torch import nn
from veilsum import Samples
from veilsum.roles.learning.datasets.supervised import SupervisedTask


def lines(options):
    train, test = (Samples.from_csv(options.data / name, target="y") for name in ("train.csv", "test.csv"))
    return SupervisedTask(train, test, lambda: nn.Linear(2, 1), "mse")


def own_model(options):
    task = lines(options)
    return SupervisedTask(task.train, task.test, lambda: nn.Linear(2, len(task.train)), "mse")
"""
NAMES = ("alice", "bob", "eve")


def write_rows(folder: Path, rows: int) -> Path:
    """Points on the plane y = a + 2 b, other ones for every number of rows."""
    folder.mkdir()
    for name, count in (("train.csv", rows), ("test.csv", 2 + rows % 3)):
        points = np.random.default_rng(rows).uniform(-1, 1, (count, 2)).round(3)
        lines = [f"{a},{b},{a + 2 * b:.3f}" for a, b in points]
        (folder / name).write_text("\n".join(("a,b,y", *lines)) + "\n")
    return folder


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Path]:
    (tmp_path / "task.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    return {name: write_rows(tmp_path / name, 10 + index) for index, name in enumerate(NAMES)}


def configured(folders: Mapping[str, Path], **changes: object) -> FederationConfig:
    data = ",".join(f"{name}={folder}" for name, folder in folders.items())
    settings = {"scheme": "masked", "parties": NAMES, "task": "./task.py:lines", "split": "own", "rounds": 2}
    return FederationConfig.from_options({**settings, "data": data, **changes})


def test_every_party_trains_on_all_of_its_own_rows_and_the_mean_is_weighted_by_them(
    folders: Mapping[str, Path],
) -> None:
    result = simulate(configured(folders))
    learners = result.federation.learners
    held = {name: len(one.data) for name, one in learners.items() if isinstance(one, HoldsSamples)}
    assert held == {"alice": 10, "bob": 11, "eve": 12}
    assert result.failed is None
    assert result.exact


def test_all_parties_are_measured_on_the_test_rows_of_all_folders_in_their_order(
    folders: Mapping[str, Path],
) -> None:
    config = configured(folders)
    own = load_party_tasks(config)
    alone = [Samples.from_csv(folders[name] / "test.csv", target="y") for name in NAMES]
    wanted = Samples.joined(alone).inputs
    assert all(np.array_equal(task.test.inputs, wanted) for task in own.values())
    federation = simulate(config).federation
    assert (
        len({json.dumps(one.evaluate(federation.initial_model)) for one in federation.learners.values()}) == 1
    )
    require_mentions(" ".join(federation.data_notes()), len(wanted))


@pytest.mark.parametrize("beside", ["plain", "central", "standalone"])
def test_a_run_is_compared_with_runs_on_the_same_rows(folders: Mapping[str, Path], beside: str) -> None:
    result = simulate(configured(folders), compare=beside)
    assert result.baseline is not None
    assert result.baseline.metrics.keys() == result.metrics.keys()
    if beside == "plain":
        assert result.baseline_distance is not None
        assert result.baseline_distance < 1e-4


def test_a_party_with_other_columns_is_named(folders: Mapping[str, Path]) -> None:
    for name in ("train.csv", "test.csv"):
        (folders["bob"] / name).write_text("a,b,c,y\n1,2,3,4\n")
    with refusal(TaskError, "bob", "alice", "columns"):
        simulate(configured(folders))


def test_a_model_that_follows_from_a_partys_own_rows_is_refused_with_its_name(
    folders: Mapping[str, Path],
) -> None:
    with refusal(TaskError, "bob", "alice", "model"):
        simulate(configured(folders, task="./task.py:own_model"))


def test_launch_and_simulate_of_one_file_refuse_own_folders_that_nobody_named(
    folders: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fed = tmp_path / "fed"
    create_federation(fed, configured(folders, data=str(folders["alice"]), max_weight=50))
    for words in (["launch", str(fed)], ["simulate", str(fed / "federation.toml")]):
        assert main(words) == 2
        require_mentions(capsys.readouterr().err, "--data", "own", "alice=FOLDER,bob=FOLDER")
    assert not (fed / "state").exists()
    assert main(["launch", str(fed), "--data", "alice=alice,bob=bob"]) == 2
    require_mentions(capsys.readouterr().err, "eve")


@needs_mosquitto
def test_launch_and_simulate_give_the_same_model_with_folders_named_on_their_command_lines(
    folders: Mapping[str, Path], tmp_path: Path
) -> None:
    fed = tmp_path / "fed"
    create_federation(fed, configured(folders, data=str(folders["alice"]), max_weight=50, seed=7))
    named = ["--data", ",".join(f"{name}={folder}" for name, folder in folders.items())]
    hashes = []
    for words in (["simulate", str(fed / "federation.toml")], ["launch", str(fed)]):
        out = tmp_path / f"{words[0]}.json"
        done = run_veilsum(*words, *named, "--json", str(out))
        assert done.returncode == 0, done.stdout + done.stderr
        hashes.append(json.loads(out.read_text())["model_sha256"])
    assert hashes == [simulate(configured(folders, seed=7, max_weight=50)).figures()["model_sha256"]] * 2


def test_a_role_reads_its_own_entry_and_the_server_the_first(
    folders: Mapping[str, Path], tmp_path: Path
) -> None:
    fed = tmp_path / "fed"
    create_federation(fed, configured(folders))
    loaded = load_federation(fed)
    assert loaded.data_folder(None, PartyId("bob")) == folders["bob"]
    assert loaded.data_folder(None, "server") == folders["alice"]
    assert loaded.data_folder("bob=x", "bob") == Path("x")
    assert 'data = "alice=' in (fed / "federation.toml").read_text()
