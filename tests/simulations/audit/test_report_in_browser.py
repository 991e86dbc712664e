"""The report as a browser shows it: on a phone of 375 pixels, on a wide screen, and from the keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize

from tests.simulations.audit.test_report import HOSTILE, pictured, row, several
from tests.support.browser import PHONE, WIDE, Scheme, Sight, looking
from veilsum.roles.cli import main as cli
from veilsum.simulations.audit.report.curves import sections
from veilsum.simulations.audit.report.page import Report, render
from veilsum.simulations.audit.sweeps.cap import Point
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome

pytestmark = pytest.mark.long

_CONTRAST = """() => {
  const luminance = text => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(Number).map(
      v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = one => {
    for (let up = one; up; up = up.parentElement) {
      const colour = getComputedStyle(up).backgroundColor;
      if (!/, 0\\)$/.test(colour) && colour !== 'transparent') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const poor = [];
  for (const one of document.querySelectorAll('body *')) {
    if (one.closest('svg') || !one.checkVisibility()) continue;
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    const [a, b] = [luminance(getComputedStyle(one).color), luminance(behind(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${one.tagName}.${one.className}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of a command, one of everything with names of any length, and one of curves."""
    folder = tmp_path_factory.mktemp("reports")
    made = {name: folder / f"{name}.html" for name in ("run", "all", "ppc")}
    asked = ["audit", "run", "--scheme", "masked", "--attack", "analytic"]
    assert cli.main([*asked, "--html", str(made["run"])]) == 0
    long = "x" * 90
    rows = [*several(), pictured(HOSTILE), row(1, 0.9, scheme=long, adversary=long, attack=long, note=long)]
    everything = Report(
        "Audit of everything", f"veilsum audit all --scheme {long}", "smoke", rows, notes=[long]
    )
    made["all"].write_text(render(everything), encoding="utf-8")
    distances = dict.fromkeys(("rmse", "rmse_raw", "label", "tracing"), 0.5)
    levels = {"naive": distances, "adaptive": distances}
    points = [Point(name, ratio, ratio, 0.8, levels) for name in ("dp", "spn") for ratio in (0.1, 1.0, 100.0)]
    drawn = sections(PpcOutcome(points))
    made["ppc"].write_text(
        render(Report("Curves", "veilsum audit ppc", "smoke", rows, drawn)), encoding="utf-8"
    )
    return made


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
        assert sight.page.evaluate(_CONTRAST) == []


def test_text_that_does_not_stand_out_is_found(tmp_path: Path) -> None:
    poor = tmp_path / "poor.html"
    poor.write_text(
        "<body style='background: #fff'><p>black</p><p class='pale' style='color: #999'>pale</p></body>"
    )
    with looking(poor.as_uri()) as sight:
        assert [one.partition(":")[0] for one in sight.page.evaluate(_CONTRAST)] == ["P.pale"]


@pytest.mark.parametrize("name", ["run", "all"])
def test_the_verdict_is_on_the_first_screen_and_the_page_says_the_same_without_scripts(
    pages: dict[str, Path], name: str
) -> None:
    with looking(pages[name].as_uri(), WIDE, scripts=False) as sight:
        verdict = sight.page.get_by_role("region", name="Verdict", exact=True)
        box = verdict.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= WIDE["height"]
        assert sight.page.get_by_text("What it means").is_visible()
        command = sight.page.get_by_text("Command", exact=True).bounding_box()
        assert command is not None
        assert command["y"] <= WIDE["height"]


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


def test_a_wide_screen_shows_every_column_of_the_verdicts(pages: dict[str, Path]) -> None:
    with looking(pages["run"].as_uri(), WIDE) as sight:
        unfold(sight)
        cut = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1)"
        assert sight.page.evaluate(f"{cut}.length") == 0
