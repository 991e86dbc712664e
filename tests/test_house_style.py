"""The measurable half of the house style: short files, short functions, an idea at the head of each file."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.sources import ROOT, parse, source_files

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
UNFINISHED = ("TODO", "FIXME", "XXX")


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_files_stay_short() -> None:
    lengths = {str(path): len(text_of(path).splitlines()) for path in source_files()}
    assert not {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE}


def test_functions_stay_short() -> None:
    lengths = {
        f"{path}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in source_files()
        for node in ast.walk(parse(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION}


def test_every_file_says_what_it_is_for() -> None:
    assert not [str(path) for path in source_files() if not ast.get_docstring(parse(path))]


def test_no_unfinished_business_is_left_in_a_file() -> None:
    assert not [str(path) for path in source_files() if any(word in text_of(path) for word in UNFINISHED)]
