"""Where parties have folders of their own, a server that alone has the model measures it on the test samples of all."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.brokers.broker import needs_mosquitto
from tests.support.launches import run_veilsum
from veilsum.roles.cli import main as cli


@needs_mosquitto
def test_the_metric_of_the_last_round_is_that_of_the_run_where_the_server_alone_has_the_model(
    tmp_path: Path,
) -> None:
    """In each round, and in the end, it is about the test samples of all folders."""
    study, out = tmp_path / "study", tmp_path / "out.json"
    assert cli.main(["new", str(study), "--scheme", "perturbed", "--parties", "2"]) == 0
    settings = study / "federation.toml"
    settings.write_text(settings.read_text().replace("rounds = 30", "rounds = 2"))
    launched = run_veilsum("launch", str(study), "--json", str(out))
    assert launched.returncode == 0, launched.stderr
    figures = json.loads(out.read_text())
    evaluated = run_veilsum(
        "evaluate", str(study), "--name", "server", "--key", str(study / "keys" / "server"), "--json", "-"
    )
    pooled = json.loads(evaluated.stdout)["metrics"]
    assert figures["rounds"][-1]["metrics"] == pooled
    assert figures["metric"] == pooled[figures["metric_name"]]
