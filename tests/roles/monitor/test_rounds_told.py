"""`veilsum status` shows loss and metric of each round where logs are, the newest last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.federations import make_federation
from tests.support.told_runs import ToldRun
from veilsum.roles.cli import main as cli
from veilsum.roles.commands.run import status
from veilsum.roles.monitor import rounds_told
from veilsum.roles.monitor.history import RunHistory
from veilsum.roles.monitor.log_tail import LogTail
from veilsum.roles.monitor.rounds_told import rounds_table
from veilsum.roles.monitor.watching import Board


def told(run: ToldRun) -> RunHistory:
    history = RunHistory()
    assert history.take_all(LogTail(run.logs).facts())
    return history


def test_the_newest_rounds_stand_in_the_table_and_it_says_how_many_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_told, "MOST_SHOWN", 2)
    run = ToldRun(tmp_path)
    run.start()
    assert rounds_table(told(run)) == ""
    run.commit(5)
    title, *_, before, newest = rounds_table(told(run)).strip().splitlines()
    assert "3 older" in title
    assert before.split()[:3] == ["4", "3", "0.6000"]
    assert newest.split()[:3] == ["5", "3", "0.5000"]
    assert "accuracy 0.9000" in newest


@pytest.mark.parametrize("named", [True, False])
def test_the_command_tells_every_round_of_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: bool
) -> None:
    async def listen(*_: Any) -> Board:
        return Board()

    monkeypatch.setattr(status, "_listen", listen)
    loaded = make_federation(tmp_path / "fed", "masked", 3)
    run = ToldRun(tmp_path if named else loaded.folder)
    run.start()
    run.commit(9)
    more = ["--logs", str(run.logs)] if named else []
    assert cli.main(["status", str(loaded.folder), *more, "--json", "-"]) == 1
    shown = capsys.readouterr()
    rounds = json.loads(shown.out)["rounds"]
    assert [one["round"] for one in rounds] == list(range(1, 10))
    assert rounds[0] == {
        "round": 1,
        "members": ["p1", "p2", "p3"],
        "loss": pytest.approx(2.1),
        "metrics": {"accuracy": 0.5, "loss": 1.0},
    }
    assert "accuracy" in shown.err
