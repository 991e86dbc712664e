"""How tests check a refusal: by its type, its typed reason and the names it must mention, never by a whole sentence.

A sentence in a test freezes the wording of an error: whoever says it better has to look for the copies. What must
not change is who erred, why, and which name or figure the reader needs; `tests.support.refusals` asserts these.

Found are texts of four words and more that a `match=` or a comparison holds against an error, wherever the text stands:
in the call, in a variable, in the rows of a table that the test is repeated with or that it loops over. The text of an
error is an exception's, a problem's or a reason's, and what a command writes to standard error.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.refusals import refusal, require_mentions
from tests.support.sources import files_of_tests, parse
from veilsum.protocol.errors import AbortReason, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId

MOST_WORDS = 3
TELLS = re.compile(
    r"\b(caught|error|errors|problems?|refused|raised|complaint|reason|told|err|stderr|excinfo)\b"
)
"""What an expression that yields the text of an error speaks of."""
PATTERNS = {"match", "search", "fullmatch", "findall"}
COMPARED = {"startswith", "endswith", "count", "find", "index", *PATTERNS}

Texts = dict[str, list[ast.expr]]


def words_of(text: str, *, pattern: bool) -> list[str]:
    """The words of a text, or of a pattern, whose gaps count as spaces."""
    return (re.sub(r"\\[sW][+*?]*|(?<!\\)\.[+*?]*", " ", text) if pattern else text).split()


def spelled(node: ast.AST, given: Texts, depth: int = 3) -> Iterator[str]:
    """The texts that an expression may be; a value put into one counts as one word or a part of it."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts)
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            heads = list(spelled(left, given, depth)) or ["x"]
            tails = list(spelled(right, given, depth)) or ["x"]
            yield from (head + tail for head in heads for tail in tails)
        case ast.Call(args=arguments):
            for one in arguments:
                yield from spelled(one, given, depth)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            for one in elements:
                yield from spelled(one, given, depth)
        case ast.IfExp(body=body, orelse=other):
            yield from (*spelled(body, given, depth), *spelled(other, given, depth))
        case ast.Subscript(value=table):
            for one in rows_of(table, given):
                yield from spelled(one, given, depth)
        case ast.Name(id=name) if depth:
            for one in given.get(name, ()):
                yield from spelled(one, given, depth - 1)


def bind(target: ast.AST, value: ast.AST, given: Texts) -> None:
    """Note what a name is given, also one of several at once."""
    if isinstance(target, ast.Name) and isinstance(value, ast.expr):
        given[target.id].append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple | ast.List):
        for each, part in zip(target.elts, value.elts, strict=False):
            bind(each, part, given)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
        for each, part in zip(target.elts, value.args, strict=False):
            bind(each, part, given)


def rows_of(node: ast.AST, given: Texts) -> list[ast.expr]:
    """The elements of a literal, a constant or the sides of a mapping, which a loop or a repetition goes through."""
    match node:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return elements
        case ast.Dict(values=values):
            return values
        case ast.Name(id=name):
            return [row for value in given.get(name, ()) for row in rows_of(value, {})]
        case ast.Call(func=ast.Attribute(value=value, attr="items"), args=[]):
            return [ast.Tuple([row, row]) for row in rows_of(value, given)]
        case ast.Call(func=ast.Attribute(value=value, attr="values"), args=[]):
            return rows_of(value, given)
    return []


def bindings(tree: ast.AST, outer: Texts) -> Texts:
    """The names of a piece of source with the expressions that they are given, by assignment, loop and repetition."""
    given: Texts = defaultdict(list, {name: list(values) for name, values in outer.items()})
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    bind(target, value, given)
                    if isinstance(value, ast.Subscript):  # one row of a table
                        for row in rows_of(value.value, given):
                            bind(target, row, given)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                bind(target, value, given)
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                for row in rows_of(source, given):
                    bind(target, row, given)
            case ast.Call(func=func, args=[names, rows, *_]) if ast.unparse(func).endswith("parametrize"):
                spelled_names = names.elts if isinstance(names, ast.Tuple | ast.List) else [names]
                words = [
                    one for each in spelled_names for one in ast.literal_eval(each).replace(",", " ").split()
                ]
                target = (
                    ast.Tuple([ast.Name(word) for word in words]) if len(words) > 1 else ast.Name(words[0])
                )
                for row in rows_of(rows, given):
                    bind(target, row, given)
    return given


def held_against_errors(tree: ast.AST, given: Texts) -> Iterator[tuple[ast.expr, bool]]:
    """The expressions that a `match=` or a comparison holds against the text of an error, and whether as a pattern."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="match", value=value):
                yield value, True
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(tells(side, given) for side in sides):
                    yield from ((side, False) for side in sides if not tells(side, given))
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=arguments) if attr in COMPARED:
                if any(tells(one, given) for one in (value, *arguments)):
                    yield from ((one, attr in PATTERNS) for one in arguments if not tells(one, given))


def tells(node: ast.AST, given: Texts, depth: int = 2) -> bool:
    """Whether an expression is the text of an error, by what it speaks of or by what its name was given."""
    if isinstance(node, ast.Name) and depth:
        return any(tells(value, given, depth - 1) for value in given.get(node.id, ()))
    return not isinstance(node, ast.Constant | ast.JoinedStr) and bool(TELLS.search(ast.unparse(node)))


def sentences(tree: ast.Module) -> set[tuple[int, str]]:
    """Line and text, for each text of more than three words that is held against an error."""
    of_the_file = bindings(ast.Module([node for node in tree.body if isinstance(node, ast.Assign)], []), {})
    found = set()
    for part in tree.body:
        given = bindings(part, of_the_file)
        for held, pattern in held_against_errors(part, given):
            texts = [
                text for text in spelled(held, given) if len(words_of(text, pattern=pattern)) > MOST_WORDS
            ]
            found |= {(held.lineno, text) for text in texts}
    return found


def test_no_test_asserts_a_whole_sentence() -> None:
    assert not [
        f"{path}:{line}: {text}" for path in files_of_tests() for line, text in sentences(parse(path))
    ]


@pytest.mark.parametrize(
    "lines",
    [
        'with pytest.raises(ValueError, match="it is not there"): ...',
        'with pytest.raises(ValueError, match=f"{wrong} is not there"): ...',
        'with pytest.raises(ValueError, match="it is " + "not there"): ...',
        'with pytest.raises(ValueError, match=re.escape("it is not there")): ...',
        'with pytest.raises(ValueError, match=r"it\\sis\\s+not.there"): ...',
        'says = "it is not there"\n    with pytest.raises(ValueError, match=says): ...',
        'for says in ("it is not there", "short"):\n        with pytest.raises(ValueError, match=says): ...',
        'for one, says in ((1, "it is not there"),):\n        assert says in str(caught.value)',
        "with pytest.raises(ValueError, match=SAYS): ...",
        "with pytest.raises(ValueError, match=ROWS[name]): ...",
        "for name, says in ROWS.items():\n        assert says in str(caught.value)",
        'assert "it is not there" in str(error)',
        'assert "it is not there" in caught.value.problems[0]',
        'assert str(caught.value) == "it is not there"',
        'assert capsys.readouterr().err.startswith("it is not there")',
        'assert re.search("it.is.not.there", done.stderr)',
        'said = str(caught.value)\n    assert "it is not there" in said',
        'assert all(one in str(error) for one in ("short", "it is not there"))',
    ],
)
def test_a_sentence_is_found_wherever_it_stands(lines: str) -> None:
    tables = 'SAYS = "it is not there"\nROWS = {"a": "it is not there"}\n'
    found = sentences(ast.parse(f"{tables}def test_it(capsys):\n    {lines}"))
    assert len(found) == 1


def test_a_sentence_is_found_in_the_rows_that_a_test_is_repeated_with() -> None:
    source = """
@pytest.mark.parametrize(("a", "says"), [(1, "too few of them"), pytest.param(2, "far too few of them"), (3, "few")])
@pytest.mark.parametrize("also", ["none of them here", "none"])
@pytest.mark.parametrize("unused", ["this is compared with nothing"])
def test_it(a, says, also, unused):
    with pytest.raises(ValueError, match=says) as caught: ...
    assert also in str(caught.value)
"""
    assert {text for _, text in sentences(ast.parse(source))} == {
        "too few of them",
        "far too few of them",
        "none of them here",
    }


def test_what_names_things_and_what_a_command_prints_as_its_result_is_left_alone() -> None:
    source = """
def test_it(capsys):
    with pytest.raises(ValueError, match="not there"): ...
    with refusal(ValueError, *"clip 4.0 8.0 roster".split()) as caught: ...
    require_mentions(str(caught.value), "clip", 4.0, 8.0, "roster")
    assert "a table of all the figures" in capsys.readouterr().out
    assert help_text == "what this command is for"
"""
    assert not sentences(ast.parse(source))


@pytest.mark.parametrize("names", [("bob",), ("clip", 3), ("clip is",), ()])
def test_a_name_that_is_missing_or_no_single_word_fails(names: tuple[object, ...]) -> None:
    require_mentions("clip of bobby: 31, not 4.0", "clip", "bobby", 31, 4.0)
    with pytest.raises(AssertionError):
        require_mentions("clip of bobby: 31, not 4.0", *names)


@pytest.mark.parametrize(
    ("names", "typed"),
    [(("p2",), {}), ((), {"reason": AbortReason.BAD_KEY}), ((), {"culprit": "p2"}), ((), {"detail": "x"})],
)
def test_a_refusal_of_another_name_reason_culprit_or_attribute_fails(
    names: tuple[str, ...], typed: dict[str, Any]
) -> None:
    error = RemoteProtocolError(PartyId("p1"), AbortReason.BAD_VECTOR, "too long")
    with refusal(RemoteProtocolError, "p1", reason=AbortReason.BAD_VECTOR, culprit="p1", detail="too long"):
        raise error
    with pytest.raises(AssertionError), refusal(RemoteProtocolError, *names, **typed):
        raise error
