"""The notebooks run from top to bottom, and show what they say they show."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.support.notebooks import FOLDER, executed, shown

QUICK = "2-your-task-and-defence.ipynb"
"""The one that runs in seconds; the others play a dozen federations each."""
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == QUICK else pytest.mark.long) for one in NOTEBOOKS]
)
def test_a_notebook_shows_the_same_words_when_it_is_run_again(name: str) -> None:
    kept = nbformat.read(FOLDER / name, as_version=4)
    before, now = list(shown(kept)), list(shown(executed(FOLDER / name)))
    assert any(before), "it was committed without what it shows"
    assert now == before


def test_a_notebook_that_shows_other_words_is_found() -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("")])
    for text, same in (("a 1.5e-08  b", True), ("a 2 b", True), ("a 1 c", False), ("ab 1 b", False)):
        book.cells[0].outputs = [nbformat.v4.new_output("stream", text=text)]
        assert (list(shown(book)) == [["a # b"]]) is same


def test_every_notebook_is_in_the_index_and_names_no_folder_of_the_machine_it_ran_on(
    repository: Path,
) -> None:
    index = (repository / "specs" / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    for name in NOTEBOOKS:
        assert f"(notebooks/{name})" in index
        assert "/tmp" not in (FOLDER / name).read_text(encoding="utf-8")
