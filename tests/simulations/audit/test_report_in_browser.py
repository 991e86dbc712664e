"""The report as a browser shows it: on a phone of 375 pixels, on a wide screen, and from the keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize

from tests.simulations.audit.test_report import HOSTILE, pictured, row, several
from tests.support.browser import PHONE, WIDE, Scheme, Sight, looking
from veilsum.roles.cli import main as cli
from veilsum.simulations.audit.report.curves import sections
from veilsum.simulations.audit.report.page import Report, Section, render
from veilsum.simulations.audit.report.summary import Summary
from veilsum.simulations.audit.sweeps.cap import Point
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of a command, one of everything with names of any length, and one of curves."""
    folder = tmp_path_factory.mktemp("reports")
    made = {name: folder / f"{name}.html" for name in ("run", "all", "ordinary", "ppc", "longest")}
    asked = ["audit", "run", "--scheme", "masked", "--attack", "analytic"]
    assert cli.main([*asked, "--html", str(made["run"])]) == 0
    long = "x" * 90
    rows = [*several(), pictured(HOSTILE), row(1, 0.9, scheme=long, adversary=long, attack=long, note=long)]
    everything = Report(
        "Audit of everything", f"veilsum audit all --scheme {long}", "smoke", rows, notes=[long]
    )
    made["all"].write_text(render(everything), encoding="utf-8")
    ordinary = Report("Audit of everything", "veilsum audit all", "smoke", several(), figures())
    made["ordinary"].write_text(render(ordinary), encoding="utf-8")
    curves = Report("Curves", "veilsum audit ppc", "smoke", rows, figures())
    made["ppc"].write_text(render(curves), encoding="utf-8")
    made["longest"].write_text(render(longest()), encoding="utf-8")
    return made


def longest() -> Report:
    """Sentences of the length of those of specs/figures/audit.md, and a command with many options."""
    tried = (
        "Small federations learned digits under 6 schemes and 4 defences in training; "
        + "attacks tried " * 13
    )
    found = (
        "In the worst case, where an update stands for one image or a few, of 24 combinations "
        + "21 leak " * 28
    )
    means = "A sum of few images hides nothing, and large batches make it harder to read " + "not safe " * 18
    command = (
        "veilsum audit all --scale quick --fail-on batch-leaks --accept 'plain/*/*' --accept 'perturbed/*/*'"
    )
    said = Summary(tried, found, means)
    return Report("Audit of everything, scale quick", command, "quick", several(), summary=said)


def figures() -> list[Section]:
    distances = dict.fromkeys(("rmse", "rmse_raw", "label", "tracing"), 0.5)
    levels = {"naive": distances, "adaptive": distances}
    points = [Point(name, ratio, ratio, 0.8, levels) for name in ("dp", "spn") for ratio in (0.1, 1.0, 100.0)]
    return sections(PpcOutcome(points))


def unfold(sight: Sight) -> None:
    sight.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
@pytest.mark.parametrize("name", ["run", "all", "ppc"])
def test_nothing_sticks_out_folded_or_not_and_all_text_stands_out_from_what_is_behind_it(
    pages: dict[str, Path], name: str, size: ViewportSize, scheme: Scheme
) -> None:
    with looking(pages[name].as_uri(), size, scheme=scheme) as sight:
        sight.require_sound()
        unfold(sight)
        sight.require_sound()


@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
@pytest.mark.parametrize("name", ["run", "all", "longest"])
def test_the_verdict_is_on_the_first_screen_and_the_page_says_the_same_without_scripts(
    pages: dict[str, Path], name: str, size: ViewportSize
) -> None:
    """Three sentences, then data set, date and command."""
    with looking(pages[name].as_uri(), size, scripts=False) as sight:
        verdict = sight.page.get_by_role("region", name="Verdict", exact=True)
        said = [verdict, *(sight.page.get_by_text(what, exact=True) for what in ("Data set", "Date"))]
        said.append(sight.page.locator(".facts code"))
        ends = []
        for one in said:
            assert one.is_visible()
            box = one.bounding_box()
            assert box is not None
            ends.append(box["y"] + box["height"])
        assert max(ends) <= size["height"]
        assert ends[0] == min(ends)
        assert verdict.locator("dd").count() == 3


def test_all_that_scrolls_is_reached_by_keyboard_and_folds_open_with_it(pages: dict[str, Path]) -> None:
    with looking(pages["all"].as_uri(), PHONE) as sight:
        reached = sight.by_tab(40)
        assert reached[0] == "a: Skip to the content"
        for name in ("Verdicts by scheme and adversary", "chart: "):
            assert any(one.startswith(f"div: {name}") for one in reached)
        fold = sight.page.get_by_text("Why: the attack that decided each verdict").first
        fold.focus()
        sight.page.keyboard.press("Enter")
        assert sight.page.get_by_role("region", name="Why: the attack that decided each verdict").is_visible()


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("run", WIDE), ("ordinary", WIDE)),
        *((name, PHONE) for name in ("run", "ordinary", "all", "ppc")),
    ],
    ids=lambda one: one if isinstance(one, str) else str(one["width"]),
)
def test_every_column_is_seen_whole_without_scrolling_on_a_wide_screen_if_no_name_is_longer_than_ours(
    pages: dict[str, Path], name: str, size: ViewportSize
) -> None:
    """On a phone whatever the names are."""
    with looking(pages[name].as_uri(), size) as sight:
        unfold(sight)
        assert sight.cut() == []


@pytest.mark.parametrize("name", ["run", "all", "ppc"])
def test_cards_on_a_phone_are_the_tables_of_a_wide_screen_to_who_listens(
    pages: dict[str, Path], name: str
) -> None:
    """Headings, rows and cells, each with its own text and nothing of what is printed beside it."""
    told = []
    for size in (PHONE, WIDE):
        with looking(pages[name].as_uri(), size) as sight:
            unfold(sight)
            told.append(sight.parts_of_tables())
    assert told[0] == told[1]
    assert {role for role, _ in told[0]} == {"table", "row", "columnheader", "rowheader", "cell"}
