"""The notebooks of specs/notebooks: run from the top, compared with what they show, and written anew.

    python tests/support/notebooks.py      runs all and keeps what they show now

Numbers and hashes differ from machine to machine, as floating point does: two outputs are the same if their words are.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "specs" / "notebooks"
WITHIN_S = 250
_NUMBER = re.compile(r"\b[0-9a-f]{16}\b|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def executed(notebook: Path) -> Any:
    """The notebook with what it shows now; it runs in a folder of its own, and an error in a cell is raised."""
    book = nbformat.read(notebook, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory(prefix="veilsum-") as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(book, timeout=WITHIN_S, kernel_name="python3", resources=place).execute()
    return book


def shown(book: Any) -> Iterator[list[str]]:
    """The lines that each cell shows, without numbers and without the space that columns take."""
    for cell in book.cells:
        texts = [one.get("text") or one["data"]["text/plain"] for one in cell.get("outputs", ())]
        yield [" ".join(_NUMBER.sub("#", line).split()) for text in texts for line in text.splitlines()]


def keep(notebook: Path, book: Any) -> None:
    """Write a notebook with what it shows, and without the times at which it did."""
    for number, cell in enumerate(book.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    book.metadata.language_info = {"name": "python"}
    nbformat.write(book, notebook)


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        keep(path, executed(path))
