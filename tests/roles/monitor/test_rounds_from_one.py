"""Rounds are counted from 1 wherever people or programs read them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.support.federations import make_federation
from veilsum.protocol.machines.events import AttemptBegan, RoundCommitted
from veilsum.roles.cli import main as cli
from veilsum.roles.launch.display import LiveView
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.status import Status
from veilsum.roles.monitor.watching import Board, describe, figures_of


def test_the_json_of_a_simulation_begins_with_round_one_and_says_its_schema(
    capfd: pytest.CaptureFixture[str],
) -> None:
    wanted = ["--scheme", "plain", "--parties", "2", "--task", "vectors:5", "--rounds", "2", "--json", "-"]
    assert cli.main(["simulate", *wanted]) == 0
    figures = json.loads(capfd.readouterr().out)
    assert figures["schema"] == 2
    assert [(one["round"], one["attempt"]) for one in figures["rounds"]] == [(1, 1), (2, 1)]


def test_the_log_and_the_live_view_of_a_launch_tell_the_first_round_as_one(tmp_path: Path) -> None:
    told, shown = io.StringIO(), io.StringIO()
    log = RoleLog("server", "json", told)
    log.tell(AttemptBegan(0, 0))
    log.tell(RoundCommitted(0, 0, (), bytes(32)))
    facts = [json.loads(line) for line in told.getvalue().splitlines()]
    assert [(fact["round"], fact["attempt"]) for fact in facts] == [(1, 1), (1, 1)]
    view = LiveView(make_federation(tmp_path / "fed", "plain", 2, rounds=2).config, shown)
    for fact in facts:
        view.on_fact(fact)
    assert "round 1/2 committed" in shown.getvalue()


@pytest.mark.parametrize(("done", "shown"), [(0, 1), (1, 2), (2, 2)])
def test_a_status_is_shown_with_the_round_that_the_party_is_in(tmp_path: Path, done: int, shown: int) -> None:
    loaded = make_federation(tmp_path / "fed", "plain", 2, rounds=2)
    board = Board({"p1": Status("p1", "client", 1, 1, done, 2, 0, "waiting", 0, 0, 0)})
    told = figures_of(loaded, board)["statuses"]["p1"]
    assert (told["round"], told["rounds_done"], told["attempt"]) == (shown, done, 1)
    assert f"{shown}/2" in describe(loaded, board)
