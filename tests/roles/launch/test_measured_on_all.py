"""The final model: measured on the test samples of all parties' folders, for as long as anybody wants to wait."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.launches import run_veilsum
from veilsum.roles.cli import main as cli
from veilsum.roles.commands.run import launch
from veilsum.roles.launch.nursery import Forked, Nursery


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


class SlowNursery:
    """Its only child measures until it is killed."""

    async def fork(self, words: Sequence[str]) -> Forked:
        child = Forked(0, asyncio.StreamReader(), asyncio.StreamReader())

        def end(which: signal.Signals) -> None:
            child.stdout.feed_eof()
            child.stderr.feed_eof()
            child.end_with(-which)

        child.signal_group = end  # type: ignore[method-assign]  # no process is signalled here
        return child


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_who_does_not_wait_for_the_last_figures_of_a_run_is_still_told_how_it_ended(
    which: signal.Signals,
) -> None:
    """A signal ends the measuring and no more."""

    async def measured() -> dict[str, float]:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), which)
        async with asyncio.timeout(30):
            return await launch._measure(["evaluate"], cast(Nursery, SlowNursery()))

    assert asyncio.run(measured()) == {}
