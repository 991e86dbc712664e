"""What logs tell of a run: put together in any order, checked value by value, bounded."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.roles.monitor import history as module
from veilsum.roles.monitor import log_tail
from veilsum.roles.monitor.history import RunHistory, RunState
from veilsum.roles.monitor.log_tail import LogTail
from veilsum.roles.monitor.rounds_told import rounds_figures

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FACTS = [name.removeprefix("_take_") for name in dir(RunHistory) if name.startswith("_take_")]
FIELDS = (
    "round",
    "rounds",
    "rounds_done",
    "attempt",
    "members",
    "metrics",
    "loss",
    "text",
    "named",
    "sent_bytes",
)


def told(**parties: list[dict[str, Any]]) -> RunHistory:
    history = RunHistory()
    for name, facts in parties.items():
        for fact in facts:
            history.take({"party": name, **fact}, name)
    return history


def a_round(number: int, at: str = "") -> dict[str, Any]:
    return {"fact": "round_committed", "round": number, "attempt": 1, "members": ["p1", "p2"], "at": at}


STARTED = {"fact": "started", "rounds_done": 0, "rounds": 3}


def test_a_round_has_the_mean_loss_of_its_members_and_the_metrics_of_its_model() -> None:
    history = told(
        server=[STARTED],
        p1=[{"fact": "trained", "round": 1, "loss": 2.0}],
        p2=[{"fact": "trained", "round": 1, "loss": 1.0}],
        p3=[{"fact": "trained", "round": 1, "loss": 100.0}],
    )
    history.take(a_round(1), "server")
    history.take({"fact": "measured", "round": 1, "metrics": {"accuracy": 0.5, "loss": 0.1}}, "p2")
    (one,) = history.committed()
    assert one.loss == 1.5
    assert one.metrics == {"accuracy": 0.5, "loss": 0.1}
    assert (history.state, history.wanted) == (RunState.RUNNING, 3)


def test_a_model_that_several_parties_measure_has_the_mean_of_what_they_found() -> None:
    history = told(server=[STARTED, a_round(1)])
    for party, accuracy in (("p1", 0.5), ("p2", 1.0), ("p1", 0.25)):
        history.take({"fact": "measured", "round": 1, "metrics": {"accuracy": accuracy}}, party)
    assert history.committed()[0].metrics == {"accuracy": 0.625}


def test_a_loss_that_the_scheme_finds_out_is_the_loss() -> None:
    history = told(
        p1=[{"fact": "trained", "round": 1, "loss": 2.0}], server=[STARTED, a_round(1) | {"loss": 0.25}]
    )
    assert history.committed()[0].loss == 0.25


def test_a_run_that_goes_on_keeps_the_rounds_of_its_checkpoint_and_a_fresh_one_keeps_none() -> None:
    ended = {"fact": "run_failed", "reason": "TIMED_OUT", "at": "5"}
    history = told(server=[STARTED, a_round(1), a_round(2), a_round(3), ended])
    assert (history.state, history.detail) == (RunState.FAILED, "TIMED_OUT")
    history.take({"fact": "started", "rounds_done": 2, "rounds": 3}, "server")
    assert [one.number for one in history.committed()] == [1, 2]
    assert (history.state, history.detail) == (RunState.RUNNING, "")
    history.take(STARTED, "server")
    assert history.committed() == []


def test_warnings_of_a_run_that_ended_go_and_those_before_the_next_one_starts_stay() -> None:
    """A party warns of how it begins before the server says that it started."""
    history = told(
        p1=[{"fact": "warning", "text": "old", "at": "1"}],
        server=[{**STARTED, "at": "2"}, {"fact": "stopped", "at": "3"}],
    )
    assert history.warnings == {"old": ["p1"]}
    history.take({"fact": "warning", "text": "new", "at": "4"}, "p1")
    history.take({**STARTED, "at": "5"}, "server")
    assert history.warnings == {"new": ["p1"]}


def test_traffic_of_a_round_is_what_came_on_top_also_after_a_restart() -> None:
    def traffic(done: int, sent: int) -> dict[str, Any]:
        return {"fact": "traffic", "rounds_done": done, "sent_bytes": sent, "received_bytes": 2 * sent}

    begun = [STARTED, a_round(1), a_round(2), a_round(3)]
    history = told(server=begun, p1=[traffic(1, 100), traffic(2, 150), {"fact": "started"}, traffic(3, 30)])
    assert [one.mean_traffic() for one in history.committed()] == [(100, 200), (50, 100), (30, 60)]


def test_the_log_says_who_wrote_a_fact_and_not_the_fact() -> None:
    """A user's own code prints into a party's log: it does not speak for the server."""
    history = told(server=[STARTED])
    history.take({"party": "server", "fact": "run_finished", "rounds": 3}, "p1")
    assert history.state is RunState.RUNNING


@given(st.sampled_from(FACTS), st.dictionaries(st.sampled_from(FIELDS), JSON), JSON)
def test_no_value_in_a_log_is_believed_because_it_is_there(
    fact: str, values: dict[str, Any], party: Any
) -> None:
    history = told(server=[STARTED, a_round(1)])
    history.take({"party": party, **values, "fact": fact}, "server")
    for one in history.rounds.values():
        assert one.loss is None or one.loss == one.loss
        assert all(isinstance(name, str) for name in (*one.members, *one.metrics))


def test_what_is_kept_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_ROUNDS", 5)
    monkeypatch.setattr(module, "MOST_TEXTS", 3)
    monkeypatch.setattr(module, "MOST_PARTIES", 4)
    history = told(server=[STARTED, *(a_round(number) for number in range(1, 20))])
    for number in range(20):
        history.take({"fact": "warning", "text": f"warning {number}"}, f"p{number}")
    assert [one.number for one in history.committed()] == [15, 16, 17, 18, 19]
    assert len(history.warnings) == 3
    assert len(history.parties) == 4


def hostile(what: str, number: int) -> list[tuple[str, dict[str, Any]]]:
    """A round whose logs tell long names that no other round has."""
    long = f"{what}-{number}-" + "\U0001f600" * 200
    names, figures = [f"{one}{long}" for one in range(200)], {f"{one}{long}": 0.5 for one in range(20)}
    told: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "members": [("server", {"fact": "round_committed", "round": number, "members": names})],
        "metrics": [(f"p{one}", {"fact": "measured", "metrics": figures}) for one in range(20)],
        "failures": [("server", {"fact": "round_failed", "detail": name}) for name in names],
        "losses": [(f"p{one}", {"fact": "trained", "loss": 0.5}) for one in range(200)],
        "traffic": [
            (f"p{one}", {"fact": "traffic", "rounds_done": number, "sent_bytes": 1, "received_bytes": 1})
            for one in range(200)
        ],
    }
    begun = {"fact": "round_began", "round": number}
    return [("server", begun), *((writer, {"round": number, **fact}) for writer, fact in told[what])]


@pytest.mark.parametrize("what", ["members", "metrics", "failures", "losses", "traffic"])
def test_what_rounds_were_told_in_detail_is_bounded_in_memory(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    history = told(server=[STARTED])
    tracemalloc.start()
    try:
        for number in range(1, 201):
            history.take_all(hostile(what, number))
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
    assert len(history.rounds) == 200
    assert sum(one.size for one in history.rounds.values()) == history._size <= module.MOST_BYTES


def test_of_too_much_the_oldest_rounds_keep_their_count_and_means_and_the_newest_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    history = told(server=[STARTED])
    for number in range(1, 21):
        for party, value in (("p1", 1.0), ("p2", 2.0)):
            history.take({"fact": "trained", "round": number, "loss": value}, party)
            history.take({"fact": "measured", "round": number, "metrics": {"accuracy": value / 4}}, party)
        history.take(a_round(number), "server")
        history.take(
            {"fact": "traffic", "rounds_done": number, "sent_bytes": 9 * number, "received_bytes": 0}, "p1"
        )
    oldest, newest = history.committed()[0], history.committed()[-1]
    assert (oldest.members, newest.members) == ((), ("p1", "p2"))
    assert (oldest.losses, sorted(newest.losses)) == ({}, ["p1", "p2"])
    for one in (oldest, newest):
        assert (one.count, one.loss, one.metrics, one.mean_traffic()) == (2, 1.5, {"accuracy": 0.375}, (9, 0))
    assert rounds_figures(history)[0]["members"] is None
    history.take(STARTED, "server")
    assert (history.rounds, history._size) == ({}, 0)


def lines(*facts: dict[str, Any]) -> str:
    return "".join(json.dumps(fact) + "\n" for fact in facts)


def numbers(tail: LogTail) -> Iterator[tuple[str, Any]]:
    return ((name, fact.get("number")) for name, fact in tail.facts())


def test_each_line_of_the_logs_is_read_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    log, tail = tmp_path / "p1.log", LogTail(tmp_path)
    assert list(numbers(tail)) == []
    log.write_text("printed by a task\n[1]\n" + lines({"fact": "a", "number": 1}) + '{"fact": "a", "num')
    assert list(numbers(tail)) == [("p1", 1)]
    with log.open("a") as file:
        file.write('ber": 2}\n')
    assert list(numbers(tail)) == [("p1", 2)]
    assert list(numbers(tail)) == []


def test_a_log_that_was_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log, tail = tmp_path / "p1.log", LogTail(tmp_path)
    log.write_text(lines({"fact": "a", "number": 1}, {"fact": "a", "number": 2}))
    assert len(list(tail.facts())) == 2
    log.write_text(lines({"fact": "a", "number": 3}))
    assert list(numbers(tail)) == [("p1", 3)]


def test_a_line_without_end_takes_no_memory_and_what_follows_it_is_read(tmp_path: Path) -> None:
    log, tail = tmp_path / "p1.log", LogTail(tmp_path)
    log.write_text('{"fact": "' + "x" * (6 << 20))
    assert list(tail.facts()) == []
    assert all(len(one.begun) <= 1 << 20 for one in tail._readings.values())
    with log.open("a") as file:
        file.write('"}\n' + lines({"fact": "a", "number": 1}))
    assert list(numbers(tail)) == [("p1", 1)]


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p1.log")
    (tmp_path / "p2.log").mkdir()
    (tmp_path / "p3.log").symlink_to(tmp_path / "gone")
    assert list(LogTail(tmp_path).facts()) == []
    assert list(LogTail(tmp_path / "nowhere").facts()) == []


def test_facts_of_several_logs_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(lines({"fact": "a", "at": "2", "number": 2}))
    (tmp_path / "b.log").write_text(lines({"fact": "a", "at": "1", "number": 1}))
    assert list(numbers(LogTail(tmp_path))) == [("b", 1), ("a", 2)]


def test_a_call_tells_a_bounded_number_of_facts_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "MOST_FACTS", 3)
    for name, odd in (("a", 1), ("b", 0)):
        facts = [{"fact": "a", "at": str(number), "number": number} for number in range(odd, 8, 2)]
        (tmp_path / f"{name}.log").write_text(lines(*facts))
    tail = LogTail(tmp_path)
    told = [[number for _, number in numbers(tail)] for _ in range(4)]
    assert told == [[0, 1, 2], [3, 4, 5], [6, 7], []]


def test_long_logs_take_little_memory_while_they_are_read(tmp_path: Path) -> None:
    for name in ("p1", "p2"):
        (tmp_path / f"{name}.log").write_bytes(b'{"fact":""}\n' * 100_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in LogTail(tmp_path).facts()) == log_tail.MOST_FACTS
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("told", [1.7e308, -1.7e308, 1e41, float("inf"), float("nan"), 10**400])
def test_a_figure_that_nobody_can_draw_is_as_if_it_had_not_been_said(told: float) -> None:
    history = RunHistory()
    history.take({"fact": "trained", "round": 1, "loss": told}, "p1")
    history.take({"fact": "measured", "round": 1, "metrics": {"accuracy": told, "loss": 3.4e38}}, "p1")
    assert history.rounds[1].losses == {}
    assert history.rounds[1].metrics == {"loss": 3.4e38}
