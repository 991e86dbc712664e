"""`veilsum launch`, `status`, `export` and `evaluate`, as a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.federations import QUICK, make_federation, wait_until
from tests.support.launches import processes_of, run_veilsum
from tests.support.refusals import require_mentions
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.folder import load_federation
from veilsum.simulations.run.simulate import simulate

pytestmark = needs_mosquitto


def test_a_launched_federation_gives_the_model_of_the_simulated_one_and_leaves_nothing_running(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """init, launch and simulate agree; the model can be taken away, and a second launch must say what it wants."""
    folder = tmp_path / "fed"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()]
    port = str(free_port())
    made = [
        "init",
        str(folder),
        "--scheme",
        "plain",
        "--parties",
        "2",
        "--task",
        "vectors:30",
        "--rounds",
        "2",
    ]
    assert cli.main([*made, "--broker-port", port, *flags]) == 0
    launched = run_veilsum("launch", str(folder), "--json", str(tmp_path / "out.json"))
    assert launched.returncode == 0, launched.stderr
    figures = json.loads((tmp_path / "out.json").read_text())
    in_memory = simulate(folder / "federation.toml").figures()
    for key in (
        "model_sha256",
        "scheme",
        "parties",
        "attempts",
        "sessions",
        "aborted",
        "lost",
        "task",
        "seed",
    ):
        assert figures[key] == in_memory[key], key
    assert [one["members"] for one in figures["rounds"]] == [["p1", "p2"]] * 2
    assert not processes_of(folder)
    assert cli.main(["launch", str(folder)]) == 2
    require_mentions(capfd.readouterr().err, "--resume", "--fresh")
    target = tmp_path / "model.safetensors"
    assert cli.main(["export", str(folder), str(target), "--name", "p2"]) == 0
    assert figures["model_sha256"] in capfd.readouterr().out
    assert cli.main(["evaluate", str(folder), "--model", str(target), "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["model_sha256"] == figures["model_sha256"]


@pytest.mark.long
def test_an_interrupted_launch_stops_everything_and_can_go_on(tmp_path: Path) -> None:
    """Ctrl-C exits with 130 and leaves no process; status showed the parties; --resume finishes the run."""
    folder = tmp_path / "fed"
    make_federation(folder, "plain", 3, rounds=500)
    command = [sys.executable, "-m", "veilsum", "launch", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = folder / "logs" / "server.log"
    wait_until(lambda: log.exists() and "round_committed" in log.read_text())
    status = run_veilsum("status", str(folder), "--json", "-")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert not processes_of(folder)
    shown = json.loads(status.stdout)
    assert set(shown["statuses"]) == {"server", "p1", "p2", "p3"}, status.stderr
    done = log.read_text().count("round_committed")
    text = (folder / "federation.toml").read_text().replace("rounds = 500", f"rounds = {done + 1}")
    (folder / "federation.toml").write_text(text)
    assert run_veilsum("launch", str(folder), "--resume").returncode == 0
    assert load_federation(folder).config.rounds == done + 1


@pytest.mark.long
def test_a_broker_that_dies_under_a_launch_is_started_again(tmp_path: Path) -> None:
    """Killing mosquitto in mid-run costs time and nothing else."""
    folder = tmp_path / "fed"
    make_federation(folder, "ampc", 3, rounds=30, phase_s=15.0, training_s=5.0, patience_s=30.0)
    command = [sys.executable, "-m", "veilsum", "launch", str(folder), "--json", str(tmp_path / "out.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = folder / "logs" / "server.log"
    wait_until(lambda: log.exists() and "round_committed" in log.read_text())
    for path in Path("/proc").glob("[0-9]*/cwd"):
        if (
            path.parent.joinpath("comm").read_text().strip() == "mosquitto"
            and path.resolve() == folder / "broker"
        ):
            os.kill(int(path.parent.name), signal.SIGKILL)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert "started again" in output
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["model_sha256"] == simulate(folder / "federation.toml").figures()["model_sha256"]


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["plain", "mpc", "ampc", "masked"])
def test_real_training_gives_the_same_model_over_mqtt_and_in_memory(tmp_path: Path, scheme: str) -> None:
    """init, launch, simulate on digits: equal model hashes wherever the server does not perturb the model."""
    folder = tmp_path / "fed"
    made = ["init", str(folder), "--scheme", scheme, "--parties", "4", "--task", "digits", "--rounds", "3"]
    assert cli.main([*made, "--broker-port", str(free_port())]) == 0
    launched = run_veilsum("launch", str(folder), "--json", str(tmp_path / "out.json"), timeout=280)
    assert launched.returncode == 0, launched.stderr
    simulated = run_veilsum("simulate", str(folder / "federation.toml"), "--json", str(tmp_path / "mem.json"))
    assert simulated.returncode == 0, simulated.stderr
    launched_figures, simulated_figures = (
        json.loads((tmp_path / name).read_text()) for name in ("out.json", "mem.json")
    )
    for key in ("model_sha256", "metric_name", "metric"):
        assert launched_figures[key] == simulated_figures[key]
    for here, there in zip(launched_figures["rounds"], simulated_figures["rounds"], strict=True):
        assert here["loss"] == pytest.approx(there["loss"], rel=0.02)
        assert here["metrics"] == there["metrics"]


@pytest.mark.long
def test_a_server_that_alone_has_the_model_measures_it_and_observers_hear_it_where_that_is_signed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "fed"
    task = {"task": "digits", "rounds": 30, "tell_metric": True}
    make_federation(folder, "perturbed", 3, **task, phase_s=30.0, training_s=30.0, patience_s=90.0)
    command = [sys.executable, "-m", "veilsum", "launch", str(folder), "--json", str(tmp_path / "out.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = folder / "logs" / "server.log"
    wait_until(lambda: log.exists() and "measured" in log.read_text())
    status = run_veilsum("status", str(folder), "--json", "-")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0]
    told = json.loads(status.stdout)["statuses"]
    assert told["server"]["measured"] >= 1
    assert 0 < told["server"]["metrics"]["accuracy"] <= 1
    assert not [name for name, one in told.items() if name != "server" and one["metrics"]]
    (first, *_) = json.loads(status.stdout)["rounds"]
    assert (first["round"], first["loss"] > 0) == (1, True)
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [one for one in figures["rounds"] if one["metrics"] and one["loss"]]
