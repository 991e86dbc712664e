"""The last line of a launch that failed is the first cause, not what followed from it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import make_federation
from tests.support.launches import run_veilsum
from tests.support.refusals import require_mentions

pytestmark = needs_mosquitto


def test_a_max_weight_below_the_sample_counts_is_named_at_the_launch_and_in_every_log(tmp_path: Path) -> None:
    loaded = make_federation(tmp_path / "fed", "masked", 3, task="digits", max_weight=10)
    launched = run_veilsum("launch", str(loaded.folder))
    assert launched.returncode == 1, launched.stdout
    last = [launched.stdout.splitlines()[-1]]
    for name in ("server", *loaded.config.parties):
        log = (loaded.folder / "logs" / f"{name}.log").read_text().splitlines()
        last.append(json.loads(log[-1])["detail"])
    for line in last:
        cause = line.partition("then: ")[0]
        require_mentions(cause, "max_weight")
        assert "minimum" not in cause
        assert "learning rate" not in line
