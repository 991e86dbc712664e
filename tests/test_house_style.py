"""The measurable half of the house style: short files, short functions, an idea at the head of each file, in the
product and in its tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.house import long_functions, made_up
from tests.support.sources import files_of_tests, parse, source_files, text_of

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "X" * 3)
EVERYTHING = [*source_files(), *files_of_tests()]


def said_at_the_head(path: Path) -> str:
    return ast.get_docstring(parse(path)) or ""


def names_in(tree: ast.AST) -> set[str]:
    """What a file imports, takes from something or says in a string of its own."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.alias(name=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                found.add(name)
    return found


def test_files_stay_short() -> None:
    lengths = {str(path): len(text_of(path).splitlines()) for path in EVERYTHING}
    assert not {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE}


def test_functions_stay_short() -> None:
    assert not long_functions({path: parse(path) for path in EVERYTHING}, LONGEST_FUNCTION)


def test_a_function_of_sixty_one_lines_is_found() -> None:
    long = "def f():\n" + "    pass\n" * 60
    house = made_up(roles__a=long, roles__b=long.replace("    pass\n", "", 1))
    assert long_functions(house, LONGEST_FUNCTION) == {"roles/a.py:f": 61}


def test_every_file_says_what_it_is_for() -> None:
    assert not [str(path) for path in EVERYTHING if not said_at_the_head(path)]


def prints_its_head(path: Path) -> bool:
    """Whether `--help` shows the head of a package, because it is a command with commands of its own."""
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == "COMMANDS" for one in node.targets)
        for node in parse(path).body
    )


def test_a_room_says_what_lives_in_it_and_what_may_be_used_from_outside() -> None:
    rooms = [path for path in source_files() if path.name == "__init__.py" and not prints_its_head(path)]
    sentences = {str(path): len(re.findall(r"[.?](?=\s|$)", said_at_the_head(path))) for path in rooms}
    assert len(sentences) > 40
    assert not [path for path, found in sentences.items() if found < 2]


def test_no_unfinished_business_is_left_in_a_file() -> None:
    assert not [str(path) for path in EVERYTHING if any(word in text_of(path) for word in UNFINISHED)]


def test_tests_use_the_real_classes_and_not_bags_of_attributes() -> None:
    bag = "Simple" + "Namespace"
    for use in (f"from types import {bag}", f"import types\ntypes.{bag}()", f"getattr(types, '{bag}')()"):
        assert bag in names_in(ast.parse(use))
    assert not [str(path) for path in EVERYTHING if bag in names_in(parse(path))]
