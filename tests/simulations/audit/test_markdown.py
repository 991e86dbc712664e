"""Figures in a Markdown page: what a stranger's view says is text there, to whatever renders the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.simulations.audit.test_report import row
from veilsum.simulations.audit.report.markdown import (
    curve_figures,
    figures,
    markdown_table,
    marks,
    replace_figures,
    table_in,
)
from veilsum.transport.printable import printable

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = (
    "![](https://evil.example/pixel.png)",
    "[HOLDS](javascript:alert(1))",
    "[HOLDS][1]",
    "<https://evil.example>",
    "<img src=x>",
    "<!-- figures: end -->",
    "**x**",
    "__x__",
    "~~x~~",
    "`x`",
    "&lt;b&gt;",
    "&#42;",
    "a | b",
    "\\",
    "\n# x",
)
CELLS = st.lists(st.sampled_from(HOSTILE) | st.text("\\`*_[]!<>()|#~&$;:x \n") | st.text(), max_size=4).map(
    "".join
)


def inlines(page: str) -> list[list[Token]]:
    return [one.children or [] for one in RENDERER.parse(page) if one.type == "inline"]


def text_of(children: list[Token]) -> str:
    assert {one.type for one in children} <= {"text"}
    return "".join(one.content for one in children)


@given(CELLS, CELLS)
@example(*HOSTILE[:2])
@example("\\|", "\\\\|")
def test_whatever_a_cell_says_is_shown_as_it_is_and_is_no_markup(first: str, second: str) -> None:
    shown = [text_of(one) for one in inlines(markdown_table(("a", "b"), [(first, second)]))]
    assert shown == ["a", "b", printable(first).strip(), printable(second).strip()]


@given(CELLS)
def test_a_cell_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, cell: str) -> None:
    page = tmp_path_factory.mktemp("read") / "page.md"
    page.write_text("\n".join(marks("figures")))
    table = markdown_table(("a", "b"), [(cell, "x")])
    for _ in range(2):
        replace_figures(page, table)
    assert table_in(page, "figures") == [["a", "b"], [printable(cell).strip(), "x"]]


@pytest.mark.parametrize("address", ["https://evil.example", "WWW.evil.example"])
def test_an_address_in_a_cell_does_not_stand_as_one_that_is_made_a_link_of_by_itself(address: str) -> None:
    assert address not in markdown_table(("a", "b"), [(address, "")])


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_of_a_view_and_notes_bring_no_markup_into_the_figures(hostile: str) -> None:
    pages = (
        figures("veilsum", [row(defence=hostile)], [(hostile,) * 4], [hostile]),
        curve_figures("veilsum", [], [hostile]),
    )
    for page in pages:
        found = {child.type for children in inlines(page) for child in children}
        assert found <= {"text", "code_inline"}
        assert marks("figures")[1] not in page


@given(st.text("`x \\*", min_size=1).map(lambda text: f"veilsum {text}x"))
def test_the_command_is_code_whatever_stands_in_it(command: str) -> None:
    before, code, after = inlines(figures(command, [], [], []))[0]
    assert (before.content, code.type, code.content, after.content) == (
        "Made by ",
        "code_inline",
        command,
        ".",
    )


def test_the_pages_there_are_say_the_same_to_a_reader(repository: Path) -> None:
    for name, table in (("audit.md", "figures"), ("ppc.md", "ppc")):
        page = repository / "specs" / "figures" / name
        cells = table_in(page, table)
        lines = page.read_text().splitlines()
        assert markdown_table(cells[0], cells[1:4]).splitlines()[0] in lines
