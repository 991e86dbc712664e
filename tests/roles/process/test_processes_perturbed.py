"""A perturbed model as operating-system processes over a real broker: the in-memory result, and a protected export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, broker_of, make_federation
from veilsum.roles.cli import main as cli
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.perturbation.protected import Predictor
from veilsum.roles.process.held_model import held_model
from veilsum.simulations.run.simulate import simulate

PATIENT = {"opening_s": 60.0, "phase_s": 60.0, "training_s": 60.0, "patience_s": 240.0}


@needs_mosquitto
@pytest.mark.long
@pytest.mark.timeout(900)
def test_bilateral_training_with_questions_over_mqtt_gives_the_metric_of_the_run_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fed = make_federation(
        tmp_path / "fed", "bilateral", 3, task="digits", loss="ce", learning_rate=0.3, device="cpu", **PATIENT
    )
    broker = broker_of(fed, tmp_path / "broker")
    broker.start()
    try:
        with Company(fed) as company:
            for role in company.start_all().values():
                assert role.end(600.0) == 0, role.said()
    finally:
        broker.stop()
    expected = simulate(fed.config)
    true, rounds = held_model(fed, "server")
    assert rounds == len(expected.rounds)
    distance = np.linalg.norm(true - expected.model) / np.linalg.norm(expected.model)
    assert distance < 1e-6
    learner = next(iter(expected.federation.learners.values()))
    assert learner.evaluate(true)["accuracy"] == expected.metrics["accuracy"]

    target = tmp_path / "protected.safetensors"
    assert cli.main(["export", str(fed.folder), "--protected", str(target)]) == 0
    assert "protected model of server" in capsys.readouterr().out
    task = load_task("digits", fed.config.task_options())
    assert isinstance(task, SupervisedTask)
    labels = Predictor.load(target, task).outputs(task.test).argmax(axis=1)
    assert (labels == Predictor(task, true).outputs(task.test).argmax(axis=1)).all()
    kept, _ = held_model(fed, "p1")
    assert not np.allclose(kept, true, rtol=0.01)
    assert (Predictor(task, kept).outputs(task.test).argmax(axis=1) == labels).all()
