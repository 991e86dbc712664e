"""The live page as a browser shows it, while a run goes on and after it, on a wide screen and on a phone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize, expect

from tests.support.browser import PHONE, WIDE, WITHIN_MS, Scheme, looking
from tests.support.federations import make_federation
from tests.support.served_page import Served, serving_page
from veilsum.roles.federation.folder import LoadedFederation

pytestmark = pytest.mark.long
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>" + "w" * 300
SECONDS = 240.0


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedFederation:
    return make_federation(tmp_path_factory.mktemp("browser") / "fed", "masked", 3)


@pytest.fixture
def served(loaded: LoadedFederation, tmp_path: Path) -> Iterator[Served]:
    with serving_page(loaded, tmp_path) as one:
        one.run.commit(4)
        one.run.say(
            "p2", "warning", text="a warning of some length, as warnings are: lower the learning rate"
        )
        yield one


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
def test_nothing_sticks_out_nothing_fails_nothing_is_pale_and_nobody_else_is_asked(
    served: Served, size: ViewportSize, scheme: Scheme
) -> None:
    with looking(served.url, size, scheme=scheme) as sight:
        expect(sight.page.locator("#link")).to_have_text("This page follows the run.")
        sight.require_sound()
        served.run.say("p1", "party_named", named="p3", reason="BAD_SIGNATURE", detail=HOSTILE)
        served.run.say("server", "run_failed", reason="TIMED_OUT", culprit="p3", detail="x" * 400)
        expect(sight.page.locator(".badge")).to_have_text("failed")
        sight.require_sound()
        assert sight.page.title() == "federation: a veilsum run"


def test_a_phone_shows_every_column_whole_and_a_screen_reader_the_same_tables(served: Served) -> None:
    with looking(served.url, WIDE, scripts=False) as sight:
        wide = sight.parts_of_tables()
    with looking(served.url, PHONE, scripts=False) as sight:
        assert sight.cut() == []
        narrow = sight.parts_of_tables()
    roles = [Counter(role for role, _ in told.elements()) for told in (narrow, wide)]
    assert roles[0] == roles[1]


def test_the_page_follows_the_run_without_being_loaded_again(served: Served) -> None:
    with looking(served.url) as sight:
        sight.page.evaluate("window.sameDocument = true")
        expect(sight.page.locator("#rounds tbody tr")).to_have_count(4)
        served.run.commit(2)
        expect(sight.page.locator("#rounds tbody tr")).to_have_count(6)
        expect(sight.page.locator("#latest")).to_contain_text("round 6 of 10")
        served.run.finish()
        assert sight.page.evaluate("window.sameDocument") is True
        assert sight.complaints == []


def test_tabs_share_one_stream_and_the_next_takes_over(served: Served) -> None:
    with looking(served.url) as sight:
        expect(sight.page.locator("#link")).to_have_text("This page follows the run.")
        others = [sight.page.context.new_page() for _ in range(8)]
        for one in others:
            one.goto(served.url)
        served.run.commit(1)
        for one in others:
            expect(one.locator("#rounds tbody tr")).to_have_count(5)
        assert served.page.streams == 1
        sight.page.close()
        served.run.commit(1)
        for one in others:
            expect(one.locator("#rounds tbody tr")).to_have_count(6)


def test_what_is_looked_at_stays_where_it_is_when_the_page_changes(served: Served) -> None:
    """The focus and how far a table was scrolled."""
    served.run.commit(5)
    with looking(served.url, PHONE) as sight:
        expect(sight.page.locator("#rounds tbody tr")).to_have_count(9)
        table = sight.page.locator("#rounds-scroll")
        table.focus()
        table.evaluate("one => one.scrollTop = 60")
        served.run.commit(1)
        expect(sight.page.locator("#rounds tbody tr")).to_have_count(10)
        assert sight.page.evaluate("document.activeElement.id") == "rounds-scroll"
        assert table.evaluate("one => one.scrollTop") == 60


def test_all_that_scrolls_is_reached_by_keyboard_and_the_first_key_skips_to_the_content(
    served: Served,
) -> None:
    with looking(served.url, PHONE) as sight:
        reached = sight.by_tab(3)
        assert reached[0] == "a: Skip to the content"
        assert [one for one in reached if "table of" in one] == [
            "div: table of parties",
            "div: table of rounds",
        ]
        outline = sight.page.locator("#rounds-scroll").evaluate("one => getComputedStyle(one).outlineStyle")
        assert outline == "solid"


def test_a_screen_reader_finds_parts_charts_and_the_newest_sentence(served: Served) -> None:
    with looking(served.url) as sight:
        for role in ("banner", "main", "contentinfo"):
            assert sight.page.get_by_role(role).count() == 1
        for name in ("Curves", "Parties", "Rounds", "Warnings and named parties"):
            assert sight.page.get_by_role("region", name=name).first.is_visible()
        assert sight.page.get_by_role("img", name="accuracy on the test set").count() == 1
        assert sight.page.get_by_role("progressbar", name="rounds done").count() == 1
        assert "round 4 of 10" in (sight.page.get_by_role("status").text_content() or "")
        assert sight.page.locator("#latest").get_attribute("aria-live") == "polite"


def test_who_wants_no_motion_sees_none(served: Served) -> None:
    with looking(served.url) as sight:
        moving = """() => {
          const badge = document.querySelector('.badge');
          badge.classList.add('running');
          return getComputedStyle(badge, '::before').animationName;
        }"""
        assert sight.page.evaluate(moving) == "none"
        sight.page.emulate_media(reduced_motion="no-preference")
        assert sight.page.evaluate(moving) == "pulse"


def test_without_scripts_the_page_is_whole_as_of_now(served: Served) -> None:
    with looking(served.url, PHONE, scripts=False) as sight:
        assert sight.page.locator("#rounds tbody tr").count() == 4
        assert sight.page.locator("svg.chart").count() == 3
        assert "with scripts it follows the run" in (sight.page.locator("#link").text_content() or "")


def test_a_page_whose_server_ended_says_so(loaded: LoadedFederation, tmp_path: Path) -> None:
    with contextlib.ExitStack() as after:
        with serving_page(loaded, tmp_path) as served:
            sight = after.enter_context(looking(served.url))
            expect(sight.page.locator("#link")).to_have_text("This page follows the run.")
        expect(sight.page.locator("#link")).to_contain_text("not heard")


@contextlib.contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A `veilsum` command in a session of its own, which is interrupted at the end."""
    line = [sys.executable, "-P", "-m", "veilsum", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=SECONDS)


def test_a_real_run_is_seen_while_it_goes_on_and_afterwards_from_its_files(tmp_path: Path) -> None:
    task = {
        "task": "digits",
        "model": "mlp2:8",
        "rounds": 40,
        "phase_s": 30.0,
        "training_s": 30.0,
        "patience_s": 90.0,
    }
    fed = make_federation(tmp_path / "fed", "ampc", 3, **task)
    with command("page", str(fed.folder)) as page, command("launch", str(fed.folder)) as launch:
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        with looking(url, PHONE) as sight:
            badge, rows = sight.page.locator(".badge"), sight.page.locator("#rounds tbody tr")
            expect(badge).to_have_text("running", timeout=SECONDS * 1000)
            expect(rows.nth(2)).to_be_visible(timeout=SECONDS * 1000)
            sight.require_sound()
            assert "listening for statuses" in (sight.page.locator("#source").text_content() or "")
            launch.communicate(timeout=SECONDS)
            assert launch.returncode == 0
            expect(badge).to_have_text("finished", timeout=WITHIN_MS)
            expect(rows).to_have_count(40)
            sight.require_sound()
    with command("page", str(fed.folder)) as page:
        assert page.stdout is not None
        with looking(page.stdout.readline().strip()) as sight:
            expect(sight.page.locator(".badge")).to_have_text("finished")
            assert sight.page.locator("svg.chart").count() == 3
            metrics = sight.page.locator("#rounds tbody tr td:nth-child(5)").all_text_contents()
            assert len([one for one in metrics if one != "–"]) >= 30
            sight.require_sound()
