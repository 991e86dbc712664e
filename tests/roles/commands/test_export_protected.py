"""`veilsum export --protected`: other weights, the same predictions, from what the server has on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.federations import make_federation
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.cli.main import main
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.first_model import make_beginning
from veilsum.roles.learning.model_files import load_model
from veilsum.roles.learning.perturbation.protected import Predictor
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import state_folder
from veilsum.roles.process.persistent_state import PersistentState


def test_the_servers_model_is_exported_under_other_weights_and_predicts_the_same_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fed = make_federation(tmp_path / "fed", "perturbed", task="digits")
    true = make_beginning(fed.config, None).model
    state = StateFolder(state_folder(fed.folder, SERVER), SERVER, fed.config.agreed_digest)
    state.acquire()
    state.save(PersistentState(1, true, life=1))
    state.release()
    files = [tmp_path / "one.safetensors", tmp_path / "two.safetensors"]
    for path in files:
        assert main(["export", str(fed.folder), "--protected", str(path)]) == 0
        assert "protected model of server after 1 rounds" in capsys.readouterr().out
    task = load_task("digits", fed.config.task_options())
    assert isinstance(task, SupervisedTask)
    labels = Predictor(task, true).outputs(task.test).argmax(axis=1)
    for path in files:
        assert (Predictor.load(path, task).outputs(task.test).argmax(axis=1) == labels).all()
        assert not np.allclose(load_model(path), true, rtol=0.01)
    assert not np.allclose(load_model(files[0]), load_model(files[1]), rtol=0.01)


def test_without_protection_one_must_say_whose_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "x.safetensors")]) == 2
    assert "--name" in capsys.readouterr().err
