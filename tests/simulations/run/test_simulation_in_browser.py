"""The page of a simulation as a browser shows it, on a wide screen and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize

from tests.support.browser import PHONE, WIDE, Scheme, looking
from veilsum.roles.cli import main as cli

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a table of many columns and long lines of warnings."""
    page = tmp_path_factory.mktemp("simulation") / "page.html"
    asked = ["simulate", "--scheme", "ampc", "--parties", "7", "--rounds", "4", "--task", "digits", "--model"]
    assert cli.main([*asked, "mlp2:8", "--compare", "plain", "--html", str(page)]) == 0
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
def test_nothing_sticks_out_nothing_fails_and_nobody_else_is_asked(
    simulation: Path, size: ViewportSize, scheme: Scheme
) -> None:
    with looking(simulation.as_uri(), size, scheme=scheme) as sight:
        sight.require_sound()


def test_a_phone_shows_every_column_whole_and_a_screen_reader_the_same_tables(simulation: Path) -> None:
    with looking(simulation.as_uri(), WIDE) as sight:
        wide = sight.parts_of_tables()
    with looking(simulation.as_uri(), PHONE) as sight:
        assert sight.cut() == []
        assert sight.parts_of_tables() == wide
        assert sight.page.get_by_role("columnheader").count() > 8


def test_all_that_scrolls_is_reached_by_keyboard(simulation: Path) -> None:
    with looking(simulation.as_uri(), PHONE) as sight:
        reached = sight.by_tab(8)
        assert reached[0] == "a: Skip to the content"
        for name in ("rounds", "who saw what"):
            assert any(one.startswith(f"div: {name}") for one in reached)


def test_what_is_seen_is_also_said(simulation: Path) -> None:
    with looking(simulation.as_uri()) as sight:
        for chart in sight.page.locator("svg.chart").all():
            assert chart.get_attribute("role") == "img"
            assert chart.get_attribute("aria-label")
            assert chart.locator("> desc").text_content()
        for role in ("banner", "main", "contentinfo"):
            assert sight.page.get_by_role(role).count() == 1
