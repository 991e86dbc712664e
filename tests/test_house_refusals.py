"""How tests check a refusal: by its type, its typed reason and the names it must mention, never by a whole sentence.

A sentence in a test freezes the wording of an error: whoever says it better has to look for the copies. What must
not change is who erred, why, and which name or figure the reader needs; `tests.support.refusals` asserts these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.sources import files_of_tests, parse

MOST_WORDS = 3


def text_of(node: ast.expr) -> str:
    """The words of a string as it is written; a value put into an f-string counts as one word or a part of it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    return ""


def columns(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """The arguments that a test is repeated with, one by one, with the names they are given to."""
    for mark in function.decorator_list:
        if not (isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("parametrize")):
            continue
        names, rows = mark.args[:2]
        spelled = names.elts if isinstance(names, ast.Tuple | ast.List) else [names]
        words = [name for each in spelled for name in text_of(each).replace(",", " ").split()]
        for row in getattr(rows, "elts", ()):
            cells = row.args if isinstance(row, ast.Call) else getattr(row, "elts", [row])
            yield from zip(words, [row] if len(words) == 1 and row not in cells else cells, strict=False)


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of more than three words that some `match=` of the file holds an error against."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = list(columns(function))
        for node in ast.walk(function):
            if not isinstance(node, ast.keyword) or node.arg != "match":
                continue
            names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            texts = [node.value, *(cell for name, cell in given if name in names)]
            yield from (
                (each.lineno, text_of(each)) for each in texts if len(text_of(each).split()) > MOST_WORDS
            )


def test_no_test_asserts_a_whole_sentence() -> None:
    found = [f"{path}:{line}: {text}" for path in files_of_tests() for line, text in sentences(parse(path))]
    assert not found


def test_a_sentence_is_found_in_the_call_in_an_f_string_and_in_the_rows_of_a_table() -> None:
    source = """
@pytest.mark.parametrize(("wrong", "says"), [(1, "too few of them"), (2, "two words")])
def test_it(wrong, says):
    with pytest.raises(ValueError, match="it is not there"): ...
    with pytest.raises(ValueError, match=f"{wrong} is not there"): ...
    with pytest.raises(ValueError, match="not there"): ...
    with pytest.raises(ValueError, match=says): ...
"""
    assert [text for _, text in sentences(ast.parse(source))] == [
        "it is not there",
        "x is not there",
        "too few of them",
    ]
