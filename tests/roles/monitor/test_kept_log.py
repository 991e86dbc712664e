"""A process keeps its log for the page: private, bounded, and never in the way of the run."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest

from tests.support.refusals import require_mentions
from veilsum.roles.monitor import kept_log
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.log_format import LOG_FORMATS, LogFormat
from veilsum.roles.monitor.log_tail import LogTail
from veilsum.roles.monitor.owing import LATE_AFTER_S, Owing


@pytest.mark.parametrize("shown", LOG_FORMATS)
def test_what_is_told_is_kept_as_json_however_it_is_shown(tmp_path: Path, shown: LogFormat) -> None:
    said = io.StringIO()
    log = RoleLog("alice", shown, said, logs=tmp_path / "logs")
    log.say("round_began", round=1)
    log.say("run_finished", rounds=1)
    log.say("warning", text="too late to be told")
    facts = LogTail(tmp_path / "logs").facts()
    assert [(writer, fact["fact"]) for writer, fact in facts] == [
        ("alice", "round_began"),
        ("alice", "run_finished"),
    ]
    assert len(said.getvalue().splitlines()) == 2
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "logs" / "alice.log").stat().st_mode) == 0o600


def test_a_kept_log_takes_no_more_than_twice_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_log, "LARGEST", 1000)
    log = RoleLog("alice", "json", io.StringIO(), logs=tmp_path)
    for number in range(200):
        log.say("round_began", round=number)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * 1200
    assert json.loads((tmp_path / "alice.log").read_text().splitlines()[-1])["round"] == 199


def test_a_log_that_cannot_be_kept_is_told_of_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    said = io.StringIO()
    log = RoleLog("alice", "json", said, logs=tmp_path / "logs")
    for number in (1, 2):
        log.say("round_began", round=number)
    facts = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [fact["fact"] for fact in facts] == ["round_began", "warning", "round_began"]
    require_mentions(facts[1]["text"], "alice.log")


def test_who_is_about_to_acknowledge_is_not_late_and_who_leaves_a_message_lying_is() -> None:
    now = [0.0]
    owing = Owing(clock=lambda: now[0])
    with owing.by("alice"):
        for _ in range(5):
            with owing.by("bob"):
                now[0] += LATE_AFTER_S / 4
                assert "bob" not in owing.late()
        assert owing.late() == ("alice",)
    assert owing.late() == ()
