"""Forty runs in which server, parties and broker are killed at random: none loses a committed round."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, broker_of, make_federation
from tests.support.storm import Storm, committed_hashes, require_nothing_lost, require_typed_ends

pytestmark = [needs_mosquitto, pytest.mark.long]

KILLS = 5
DEADLINES = {"opening_s": 6.0, "phase_s": 8.0, "training_s": 12.0, "patience_s": 30.0}
SCHEMES: dict[str, dict[str, Any]] = {
    "masked": {"parties": 4, "rounds": 60},
    "ampc": {"parties": 4, "rounds": 30},
    "bilateral": {"parties": 3, "rounds": 12, "task": "digits", "device": "cpu"},
}
RUNS = [("masked", seed) for seed in range(15)]
RUNS += [("ampc", seed) for seed in range(15)]
RUNS += [("bilateral", seed) for seed in range(10)]


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """One line per run, printed at the end whatever became of them."""
    lines: list[str] = []
    yield lines
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n" + "".join(f"{line}\n" for line in lines))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("scheme", "seed"), RUNS)
def test_kills_at_random_lose_no_committed_round(
    tmp_path: Path, tally: list[str], scheme: str, seed: int
) -> None:
    """Every process finishes or ends typed; resumed, all have all rounds; no round is ever told with two models."""
    fed = make_federation(tmp_path / "fed", scheme, **{**DEADLINES, **SCHEMES[scheme]})
    broker = broker_of(fed, tmp_path / "broker")
    broker.start()
    began = time.monotonic()
    try:
        with Company(fed) as company:
            storm = Storm(company, broker, f"{scheme} {seed}")
            storm.blow(KILLS)
            tally.append(_figures(storm, scheme, seed, time.monotonic() - began))
            require_typed_ends(company)
            require_nothing_lost(company)
            unfinished = {name: role.said() for name, role in storm.unfinished().items()}
            assert not unfinished, "\n".join(unfinished.values())
            assert max(committed_hashes(company)) == fed.config.rounds
    finally:
        broker.stop()


def _figures(storm: Storm, scheme: str, seed: int, seconds: float) -> str:
    kills = ", ".join(f"{count} {kind}" for kind, count in sorted(storm.killed.items()))
    reasons = ", ".join(f"{count} x {reason}" for reason, count in Counter(storm.reasons).items())
    rounds = len(committed_hashes(storm.company))
    return (
        f"{scheme} {seed}: killed {kills}; rounds committed {storm.committed_under_kills} until the last kill, "
        f"{rounds} in all; resumed {storm.resumptions} times; ended without the last: {reasons or 'none'}; "
        f"{seconds:.0f} s"
    )
