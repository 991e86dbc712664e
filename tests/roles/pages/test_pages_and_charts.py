"""What every page is made of: templates that escape, charts that a screen reader can read."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from jinja2 import UndefinedError

from veilsum.roles.pages.charts import Band, curves, grouped_bars, paired_curves
from veilsum.roles.pages.templates import environment

HOSTILE = "<script>alert('$x_1$')</script>"
SVG = "{http://www.w3.org/2000/svg}"


def test_a_template_escapes_the_names_it_is_given() -> None:
    shown = environment().from_string("<p>{{ name }}</p>").render(name=HOSTILE)
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_fact_that_a_template_misses_is_an_error_and_never_an_empty_place() -> None:
    with pytest.raises(UndefinedError, match="missing"):
        environment().from_string("{{ missing }}").render()


@pytest.mark.parametrize("name", [HOSTILE, "_hidden", "two$dollars$", "p1 & p2", "ä"])
def test_a_chart_is_well_formed_and_says_in_words_what_it_shows(name: str) -> None:
    line = curves({name: [(1, 0.5), (2, 0.25)], "other": [(1, 1.0)]}, title=name, across="round", up="loss")
    pair = paired_curves(
        {name: {"": [(1, 0.5), (2, 0.25)]}},
        title=name,
        across="ratio",
        up="accuracy",
        bands=[Band(0, 1, "small", "#009e73")],
    )
    group = grouped_bars({name: {"one": 0.5, "two": 0.1}}, title=name, up="SSIM", mark=(0.9, "rebuilt"))
    for chart in (line, pair, group):
        root = ElementTree.fromstring(chart)
        assert root.tag == f"{SVG}svg"
        assert (root.get("role"), root.get("aria-label")) == ("img", name)
        assert name in (root.findtext(f"{SVG}desc") or "")
        drawn = [text.strip() for element in root.iter(f"{SVG}text") if (text := element.text)]
        assert name in drawn


def test_equal_figures_give_equal_bytes() -> None:
    drawn = {curves({"loss": [(1, 1.0), (2, 0.5)]}, title="t", across="round", up="loss") for _ in range(2)}
    assert len(drawn) == 1


def test_a_chart_without_figures_says_so() -> None:
    root = ElementTree.fromstring(curves({}, title="loss", across="round", up="loss"))
    assert root.findtext(f"{SVG}desc") == "no figures yet"


def test_a_chart_has_no_style_of_its_own_and_the_ink_of_its_page() -> None:
    """A page may forbid inline styles, and black lines vanish in the dark."""
    for drawn in (
        curves({"a": [(1, 1.0), (2, 0.5)], "b": [(1, 1.0)]}, title="t", across="round", up="loss"),
        grouped_bars({"a": {"b": 1.0, "c": 0.5}}, title="t", up="SSIM", mark=(0.9, "rebuilt")),
        paired_curves(
            {"a": {"": [(1, 0.5)]}}, title="t", across="x", up="y", bands=[Band(0, 1, "w", "#d55e00", "//")]
        ),
    ):
        assert "style" not in drawn
        assert "#000000" not in drawn
        assert not [
            one.get("id")
            for one in ElementTree.fromstring(drawn).iter()
            if one.tag.endswith("}g") and one.get("id")
        ]


def test_a_name_as_long_as_a_page_leaves_the_chart_its_room_and_is_said_whole() -> None:
    name = "long " * 60
    chart = grouped_bars({name: {name: 1.0}}, title="t", up="u")
    assert name in (ElementTree.fromstring(chart).findtext(f"{SVG}desc") or "")
