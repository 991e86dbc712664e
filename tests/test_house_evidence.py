"""Printed guarantees show their evidence: what a page cites exists, its commands parse, and no claim stands bare."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.sources import files_of_tests, parse
from tests.test_house_docs import names_bound_in
from veilsum.protocol.schemes.registry import scheme_names
from veilsum.roles.cli.main import COMMANDS
from veilsum.roles.cli.table import Command, Parser, UsageError
from veilsum.simulations.attacks.registry import ATTACKS
from veilsum.simulations.audit.report.markdown import MATRIX, table_in
from veilsum.simulations.lies.registry import LIES

PAGES = ("threat-model", "attacks-on-rounds", "chain", "lies")
CLAIMS = "claims"
SAME_ROW = {
    "broker": "broker, eavesdropper",
    "curious server": "curious server",
    "one curious participant": "one curious participant",
    "all participants but one": "c participants",
    "server and one participant": "server and c participants",
    "curious server, two rounds that differ by one party": "curious server, over rounds",
    "lying server, two sums at one model": "lying server",
    "lying server, a crafted model": "lying server",
}
"""Each row of the measured matrix, and the row of claims that it measures."""
SAME_WORD = {"its predictions": "predictions", "refused": "lies refused"}


def spans(text: str) -> Iterator[str]:
    """What stands between single backticks, and each line of a code block."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    yield from (line for block in blocks for line in block.splitlines())
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest))


def cited_tests(text: str) -> Iterator[tuple[str, str]]:
    """Each file of tests that a text cites, with the function if there is one."""
    for span in spans(text):
        if found := re.fullmatch(r"([\w*./-]*test_\w+\.py)(?:::(\w+))?", span):
            yield found[1], found[2] or ""


def cited_commands(text: str) -> Iterator[list[str]]:
    yield from (shlex.split(span)[1:] for span in spans(text) if span.startswith("veilsum "))


def missing_tests(text: str) -> list[str]:
    """Citations that lead to no test, or to several files."""
    return [f"{name}::{function}" for name, function in cited_tests(text) if not is_there(name, function)]


def is_there(name: str, function: str) -> bool:
    files = [file for file in files_of_tests() if file.match(name)]
    return len(files) == 1 and (not function or function in names_bound_in(parse(files[0])))


def wrong_commands(text: str) -> list[str]:
    return [" ".join(words) for words in cited_commands(text) if not is_command(words)]


def is_command(words: Sequence[str], commands: Sequence[Command] = COMMANDS) -> bool:
    """Whether a command exists and its options parse; one that is named without any need not be complete."""
    command = next((one for one in commands if words[:1] == [one.name]), None)
    if command is None:
        return False
    home, rest = command.load(), words[1:]
    if hasattr(home, "COMMANDS"):
        return not rest or is_command(rest, home.COMMANDS)
    parser = Parser(command.name, "")
    home.add_arguments(parser)
    try:
        return not rest or names_what_exists(parser.parse_args(rest))
    except UsageError:
        return False


def names_what_exists(asked: argparse.Namespace) -> bool:
    known: Mapping[str, Sequence[str]] = {
        "lie": [*LIES, "list"],
        "attack": list(ATTACKS),
        "scheme": scheme_names(),
    }
    said = {name: getattr(asked, name, None) for name in known}
    return all(said[name] is None or said[name] in known[name] for name in known)


def evidence(text: str) -> dict[str, str]:
    """What stands behind each mark of the list."""
    items = re.findall(r"^- \*\*([a-z]\d)\*\* (.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return dict(items)


def marks_of(cell: str) -> list[str]:
    found = re.search(r"\[([^\]]*)\]\s*$", cell)
    return [mark.strip() for mark in found[1].split(",")] if found else []


def bare_cells(rows: Sequence[Sequence[str]], shown: Mapping[str, str]) -> list[str]:
    """Cells without a mark, or with one behind which no test and no command stands."""
    solid = {
        mark
        for mark, said in shown.items()
        if any(cited_commands(said)) or any(dict(cited_tests(said)).values())
    }
    return [
        f"{name}: {cell}"
        for name, *cells in rows
        for cell in cells
        if not marks_of(cell) or not set(marks_of(cell)) <= solid
    ]


def words_of(cell: str) -> tuple[set[str], set[str]]:
    """What an adversary gets for certain, and all that the cell names: conditions come behind a semicolon."""
    certain, *others = re.sub(r"\[[^\]]*\]", "", cell).split(";")
    sure = {word.strip() for word in certain.split(",")}
    return sure, sure | {word.strip().split(" at ")[0].split(" beyond")[0] for word in others}


def contradicts(measured: str, claimed: str) -> bool:
    """Whether a claim says less than was measured, or gives away what was measured to be hidden."""
    certain, named = words_of(claimed)
    said = {SAME_WORD.get(word.strip(), word.strip()) for word in measured.split(",") if word}
    if said <= {"nothing"}:
        return bool(said) and not certain <= {"nothing", "metadata"}
    if "lies refused" in said and {"I", "samples"} & named:
        return True
    return not said <= named


def page_of(repository: Path, name: str) -> str:
    return (repository / "specs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_every_test_that_a_page_cites_exists(repository: Path, name: str) -> None:
    assert not missing_tests(page_of(repository, name))


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_cites_parses(repository: Path, name: str) -> None:
    assert not wrong_commands(page_of(repository, name))


def test_every_cell_of_the_threat_model_has_its_evidence_and_no_evidence_is_left_over(
    repository: Path,
) -> None:
    path = repository / "specs" / "threat-model.md"
    shown = evidence(path.read_text(encoding="utf-8"))
    rows = table_in(path, CLAIMS)[1:]
    assert len(rows) > 9
    assert not bare_cells(rows, shown)
    assert shown.keys() == {mark for _, *cells in rows for cell in cells for mark in marks_of(cell)}


def test_no_cell_of_the_threat_model_says_less_than_was_measured(repository: Path) -> None:
    path = repository / "specs" / "threat-model.md"
    measured, claimed = (table_in(path, mark) for mark in (MATRIX, CLAIMS))
    cells = {
        (name, scheme.strip("`")): cell
        for name, *row in claimed[1:]
        for scheme, cell in zip(claimed[0][1:], row, strict=True)
    }
    assert not [
        f"{name}, {scheme}: measured {found}, claimed {cells[SAME_ROW[name], scheme]}"
        for name, *row in measured[1:]
        for scheme, found in zip(measured[0][1:], row, strict=True)
        if contradicts(found, cells[SAME_ROW[name], scheme])
    ]


def test_every_attack_on_rounds_has_its_test(repository: Path) -> None:
    rows = re.findall(r"^\| (?!lie|attack|-)(.*) \|$", page_of(repository, "attacks-on-rounds"), re.MULTILINE)
    assert len(rows) > 50
    assert not [row for row in rows if not any(cited_tests(row.split(" | ")[-1]))]


@pytest.mark.parametrize(
    "wrong",
    [
        "test_house_evidnce.py::",
        "tests/test_house_evidence.py::test_nothing",
        "roles/test_house_evidence.py::",
    ],
)
def test_a_citation_that_leads_nowhere_is_found(wrong: str) -> None:
    here = f"test_house_evidence.py::{test_a_citation_that_leads_nowhere_is_found.__name__}"
    good = f"`{here}`, `tests/{here}`, `test_house_evidence.py`, `protocol/chain/votes.py`"
    assert missing_tests(f"As {good} and `{wrong.removesuffix('::')}` show.") == [wrong]


@pytest.mark.parametrize(
    "wrong",
    [
        "simulatte --lie list",
        "simulate --lei list",
        "simulate --lie server:shfit",
        "simulate --rounds many",
        "roster checkpnt",
        "audit run --attack idgl",
    ],
)
def test_a_command_that_does_not_parse_is_found(wrong: str) -> None:
    good = "`veilsum roster checkpoint` `veilsum simulate --lie list`\n```\nveilsum audit run --attack idlg\n```\n"
    assert wrong_commands(f"{good}`veilsum {wrong}`") == [wrong]


def test_a_cell_without_evidence_is_found() -> None:
    page = "- **a1** `veilsum audit list`\n- **a2** see elsewhere\n- **a3** `tests/x/test_y.py`\n\nAfter."
    shown = evidence(page)
    assert list(shown) == ["a1", "a2", "a3"]
    rows = [("server", "G [a1]", "I"), ("peer", "G [a2]", "I [a1, a4]"), ("broker", "G [a3]", "I [a1]")]
    assert bare_cells(rows, shown) == ["server: I", "peer: G [a2]", "peer: I [a1, a4]", "broker: G [a3]"]


@pytest.mark.parametrize(
    ("measured", "claimed"),
    [
        ("I, G", "G [a1]"),
        ("nothing", "G [a1]"),
        ("refused", "I, G; lies refused [a1]"),
        ("about I", "G [a1]"),
    ],
)
def test_a_claim_that_differs_from_what_was_measured_is_found(measured: str, claimed: str) -> None:
    assert contradicts(measured, claimed)
    for fitting in (
        ("G", "G; I beyond [a1]"),
        ("I, G", "G; I at n - 1 [a1]"),
        ("refused", "nothing; lies refused [a1]"),
    ):
        assert not contradicts(*fitting)
