"""The page of a run, made of files alone: what it shows, and that nothing in a log or a status steers it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.federations import make_federation
from tests.support.told_runs import ToldRun
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.monitor.history import RunHistory
from veilsum.roles.monitor.log_tail import LogTail
from veilsum.roles.monitor.status import Status
from veilsum.roles.monitor.watching import Board
from veilsum.roles.pages import follower as follower_module
from veilsum.roles.pages import run_facts
from veilsum.roles.pages.follower import LiveBoard, RunFollower
from veilsum.roles.pages.run_facts import Seen, facts_of
from veilsum.roles.pages.run_page import PARTS, run_page, run_parts

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[2K\u202e\x00'\"&"


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedFederation:
    return make_federation(tmp_path_factory.mktemp("page") / "fed", "masked", 3)


def seen_of(
    loaded: LoadedFederation, run: ToldRun, board: Board | None = None, fresh: tuple[str, ...] = ()
) -> Seen:
    history = RunHistory()
    for writer, fact in LogTail(run.logs).facts():
        history.take(fact, writer)
    return Seen(loaded, history, board or Board(), frozenset(fresh), "told")


def status_of(party: str, done: int, *, late: tuple[str, ...] = (), phase: str = "waiting") -> Status:
    role = "server" if party == "server" else "client"
    return Status(party, role, 1, 1, done, 10, 0, phase, 1024, 2048, 0, late)


def test_after_the_run_the_files_alone_show_it(loaded: LoadedFederation, tmp_path: Path) -> None:
    run = ToldRun(tmp_path, rounds=3)
    run.start()
    run.commit(2)
    run.commit(1, members=("p1", "p2"))
    run.say("p2", "warning", text="a sample is large")
    run.say("p1", "party_named", named="p3", reason="BAD_SIGNATURE", detail="forged")
    run.finish()
    facts = facts_of(seen_of(loaded, run))
    assert (facts["state"], facts["done"], facts["wanted"]) == ("finished", 3, 3)
    assert [one["number"] for one in facts["rounds"]] == [3, 2, 1]
    assert facts["rounds"][0]["members"] == "2, without p3"
    assert [one["metric"] for one in facts["rounds"]] == ["0.8333", "0.7500", "0.5000"]
    assert facts["warnings"] == [("a sample is large", "p2")]
    assert facts["named"] == [("p3", ["p1: BAD_SIGNATURE, forged"])]
    assert [one.heading for one in facts["charts"]] == [
        "accuracy on the test set",
        "Loss",
        "Traffic of one party per round",
    ]


def test_a_page_that_has_statuses_alone_says_how_many_rounds_they_tell(
    loaded: LoadedFederation, tmp_path: Path
) -> None:
    board = Board()
    board.take(status_of("server", 4))
    facts = facts_of(seen_of(loaded, ToldRun(tmp_path), board, ("server",)))
    assert (facts["done"], facts["wanted"]) == (4, 10)
    assert facts["latest"].startswith("running: 4 of 10 rounds")


def test_a_page_reads_the_time_of_each_round_once(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is drawn twice a second: work that grows with the square of its rounds would keep a processor busy."""
    run, read = ToldRun(tmp_path, rounds=40), list[str]()
    run.start()
    run.commit(40)
    moment = run_facts._moment
    monkeypatch.setattr(run_facts, "_moment", lambda text: read.append(text) or moment(text))
    facts = facts_of(seen_of(loaded, run))
    assert [one["seconds"] for one in facts["rounds"]][-1] == "–"
    assert "–" not in [one["seconds"] for one in facts["rounds"]][:-1]
    assert len(read) <= 40 + 2


def test_where_parties_have_test_sets_of_their_own_the_page_says_so_and_shows_their_mean(
    loaded: LoadedFederation, tmp_path: Path
) -> None:
    run = ToldRun(tmp_path)
    run.start()
    run.commit()
    run.say("p2", "measured", round=1, metrics={"accuracy": 1.0}, model_sha256="ab" * 32)
    own = replace(loaded, config=replace(loaded.config, split="own"))
    facts = facts_of(seen_of(own, run))
    assert facts["rounds"][0]["metric"] == "0.7500"
    assert "own" in facts["charts"][0].heading
    assert "own" not in facts_of(seen_of(loaded, run))["charts"][0].heading


def test_before_anything_is_told_the_page_says_so(loaded: LoadedFederation, tmp_path: Path) -> None:
    seen = seen_of(loaded, ToldRun(tmp_path))
    assert facts_of(seen)["state"] == "waiting"
    assert "No round is committed yet" in run_page(seen)


def test_statuses_alone_show_where_everyone_is_and_who_is_late(
    loaded: LoadedFederation, tmp_path: Path
) -> None:
    board = Board()
    for status in (
        status_of("server", 4, late=("p2",), phase="collecting"),
        status_of("p1", 4),
        status_of("p2", 4),
    ):
        board.take(status)
    facts = facts_of(seen_of(loaded, ToldRun(tmp_path), board, ("server", "p1", "p2")))
    assert (facts["state"], facts["done"]) == ("running", 4)
    assert "collecting" in facts["state_words"]
    notes = {one["name"]: one["note"] for one in facts["parties"]}
    assert notes == {"server": "", "p1": "", "p2": "owes an acknowledgement", "p3": "not heard"}


def test_a_run_that_was_killed_is_not_said_to_be_running(loaded: LoadedFederation, tmp_path: Path) -> None:
    run = ToldRun(tmp_path)
    run.start()
    run.commit(2)
    assert facts_of(seen_of(loaded, run))["state"] == "not heard now"


def test_a_failed_run_says_why(loaded: LoadedFederation, tmp_path: Path) -> None:
    run = ToldRun(tmp_path)
    run.start()
    run.commit(1)
    run.say("server", "run_failed", reason="TIMED_OUT", culprit="p1", detail="nothing came")
    facts = facts_of(seen_of(loaded, run))
    assert (facts["state"], facts["state_words"]) == ("failed", "TIMED_OUT; p1; nothing came")


def test_what_others_wrote_is_text_and_nothing_else(loaded: LoadedFederation, tmp_path: Path) -> None:
    """Markup in a log, a status or a metric's name makes no element, and control characters do not survive."""
    run, board = ToldRun(tmp_path), Board()
    run.start()
    run.commit(1)
    run.say("p1", "warning", text=HOSTILE)
    run.say("p1", "party_named", named=HOSTILE, reason=HOSTILE, detail=HOSTILE)
    run.say("p1", "measured", round=1, metrics={HOSTILE: 0.5}, model_sha256=HOSTILE)
    run.say("server", "round_failed", round=2, attempt=1, reason=HOSTILE, culprit=HOSTILE, detail=HOSTILE)
    run.say("server", "run_failed", reason=HOSTILE, culprit=HOSTILE, detail=HOSTILE)
    (tmp_path / "logs" / "<b>.log").write_text(json.dumps({"fact": "started", "at": HOSTILE}))
    board.take(status_of("p1", 1, phase=HOSTILE))
    seen = seen_of(loaded, run, board, ("p1",))
    text = run_page(seen, live=True)
    elements = Elements(text)
    assert "alert(1)" in elements.words
    assert elements.tags.count("script") == 1
    assert "img" not in elements.tags
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name == "style"]
    assert not {"\x1b", "\u202e", "\x00"} & set(text)


def test_the_largest_figures_that_are_kept_are_drawn(loaded: LoadedFederation, tmp_path: Path) -> None:
    run = ToldRun(tmp_path)
    run.start()
    run.commit(2)
    for number, figure in ((1, 1e40), (2, -1e40)):
        run.say("p1", "trained", round=number, loss=figure)
        run.say("p1", "measured", round=number, metrics={"accuracy": figure, "loss": figure})
    assert Elements(run_page(seen_of(loaded, run))).tags.count("svg") == 3


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
def test_a_time_that_no_calendar_here_has_is_as_none(
    loaded: LoadedFederation, tmp_path: Path, at: str
) -> None:
    run = ToldRun(tmp_path)
    run.start()
    run.commit(2)
    with (run.logs / "server.log").open("a") as log:
        for told in ({"fact": "round_committed", "round": 3, "members": ["p1"]}, {"fact": "stopped"}):
            log.write(json.dumps({**told, "at": at}) + "\n")
    facts = facts_of(seen_of(loaded, run))
    assert facts["done"] >= 2
    assert facts["heard_at"] == "" or facts["heard_at"].startswith("2026-03-01")
    assert run_page(seen_of(loaded, run))


def test_however_much_a_log_tells_of_failures_and_parties_the_page_stays_small(
    loaded: LoadedFederation, tmp_path: Path
) -> None:
    run = ToldRun(tmp_path)
    told = [{"fact": "round_failed", "round": number, "detail": "x" * 400} for number in range(1, 201)]
    named = [
        {"fact": "party_named", "named": "p3", "detail": f"{number} {'y' * 400}"} for number in range(200)
    ]
    (run.logs / "server.log").write_text("".join(f"{json.dumps(one)}\n" for one in 30 * told + named))
    facts = facts_of(seen_of(loaded, run))
    assert len(facts["failures"]) == 200
    assert facts["failures"][0][0] == 200
    assert [len(why) for _, why in facts["named"]] == [20]


def test_a_page_in_parts_is_the_page(loaded: LoadedFederation, tmp_path: Path) -> None:
    """Whoever replaces the parts has what a reload would show."""
    run = ToldRun(tmp_path)
    run.start()
    run.commit(3)
    seen = seen_of(loaded, run)
    text, parts = run_page(seen, live=True), run_parts(seen)
    assert set(parts) == set(PARTS)
    for name, html in parts.items():
        assert html in text
        assert f'id="{name}"' in text


def test_the_table_is_bounded_and_says_what_it_leaves_out(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_facts, "MOST_ROWS", 3)
    run = ToldRun(tmp_path)
    run.start()
    run.commit(8)
    text = run_page(seen_of(loaded, run))
    assert "5 older ones are left out" in text
    assert [one["number"] for one in facts_of(seen_of(loaded, run))["rounds"]] == [8, 7, 6]


def test_curves_of_a_long_run_have_few_points_from_its_beginning_to_its_newest_round(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_facts, "MOST_POINTS", 4)
    run = ToldRun(tmp_path)
    run.start()
    for more, drawn in ((4, [1, 2, 3, 4]), (1, [1, 3, 5]), (7, [3, 6, 9, 12])):
        run.commit(more)
        assert [one.number for one in run_facts.thinned(seen_of(loaded, run).rounds)] == drawn


def test_tables_say_what_they_are_and_sections_have_names(loaded: LoadedFederation, tmp_path: Path) -> None:
    run = ToldRun(tmp_path)
    run.start()
    run.commit(2)
    elements = Elements(run_page(seen_of(loaded, run)))
    assert elements.tags.count("caption") == elements.tags.count("table") == 2
    assert elements.tags.count("h1") == 1
    assert elements.tags.count("section") == 5
    assert ("aria-live", "polite") in elements.attributes
    assert elements.tags.count("desc") == elements.tags.count("svg") == 3
    assert "th" in elements.tags
    assert ("scope", "row") in elements.attributes


def test_who_was_heard_long_ago_is_not_fresh_and_an_old_status_played_back_refreshes_nobody() -> None:
    now = [0.0]
    board = LiveBoard(clock=lambda: now[0])
    board.take(status_of("p1", 1))
    assert board.fresh() == {"p1"}
    now[0] = 60.0
    board.take(status_of("p1", 1))
    assert board.fresh() == set()


def test_a_follower_tells_only_what_changed(loaded: LoadedFederation, tmp_path: Path) -> None:
    async def follow() -> tuple[set[str], dict[str, str], set[str]]:
        run = ToldRun(tmp_path)
        run.start()
        follower = RunFollower(loaded, run.logs, tmp_path)
        async with follower.following():
            first = await follower.next_parts({}, 30)
            known = dict(first)
            run.say("p1", "warning", text="look at this")
            changed = await follower.next_parts(known, 30)
            while "notes" not in changed:
                known.update(changed)
                changed = await follower.next_parts(known, 30)
        return set(first), changed, set(known)

    first, changed, known = asyncio.run(follow())
    assert first == known == set(PARTS)
    assert "look at this" in changed["notes"]
    assert "rounds" not in changed


def test_a_page_that_cannot_be_drawn_says_so_and_goes_on_when_it_can(
    loaded: LoadedFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(seen: Seen) -> dict[str, str]:
        raise ValueError("<what nobody thought of>")

    async def follow() -> tuple[dict[str, str], dict[str, str]]:
        run = ToldRun(tmp_path)
        run.start()
        follower = RunFollower(loaded, run.logs, tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(follower_module, "run_parts", fail)
            async with follower.following():
                stood = await follower.next_parts({}, 30)
                broken.undo()
                return stood, await follower.next_parts(stood, 30)

    stood, drawn = asyncio.run(follow())
    assert set(stood) == {"source"}
    assert "&lt;what nobody thought of&gt;" in stood["source"]
    assert set(drawn) == set(PARTS)


def test_the_command_writes_the_page_as_one_file_without_scripts(tmp_path: Path) -> None:
    fed = make_federation(tmp_path / "fed", "masked", 3)
    run = ToldRun(fed.folder)
    run.start()
    run.commit(2)
    run.finish()
    page = tmp_path / "run.html"
    assert cli.main(["page", str(fed.folder), "--html", str(page)]) == 0
    elements = Elements(page.read_text(encoding="utf-8"))
    assert "2 of 10" in elements.words
    assert "script" not in elements.tags
    assert not [value for name, value in elements.attributes if name == "src"]


def test_a_port_that_is_none_or_taken_is_a_wrong_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    fed = make_federation(tmp_path / "fed", "masked", 3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 70000):
            assert cli.main(["page", str(fed.folder), "--port", str(port)]) == 2
            assert f"--port {port}" in capsys.readouterr().err
