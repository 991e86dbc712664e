"""One word per thing: what the glossary bans occurs neither in code nor in texts.

A published name cannot change and stays, by the list below; decisions and the changelog quote older words.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.sources import ROOT

GLOSSARY = ROOT / "specs" / "glossary.md"
CODE = ("protocol", "transport", "roles", "simulations", "tests", "veilsum")
THIS_FILE = Path(__file__).relative_to(ROOT)

PUBLISHED: tuple[str, ...] = (
    r"\blocal_epochs\b",
    r'\b(Rekey\.)?EPOCH\b( = "epoch")?',  # a value of the setting `rekey`
    r"\bEPOCH_(SHARE|BIAS)\b|\bepoch-(share|bias|biases)\b",  # purposes and tags of key derivation
    r'"epoch_keys"',  # in the file of a view
    r"\b0008-epochs-and-sessions\b",
    r"(?i:\bgathering[-_](keys|shares|releases)\b)",  # phases
    r"--noise\b|\[noise\]|\b(config|args)\.noise\b|\bnoise=(kind|scale)\b|\bnoise: str\b",  # option and setting
    r"\"noise\"|\bnoise ['`]scale",  # the setting as a key, or with its value
    r"\bperturbed\.noise\b",  # a message kind, and an agreed option
    r"\bpublic-noise\b",  # a domain tag
    r'"noise_secrets"',  # in the file of a view
    r"\bnoise-(line|data-free|exchange|softmax|factors|signs|shared-mask|membership)\b",  # attacks
)
"""Options, settings, message kinds, domain tags and file keys that hold a banned word, as regular expressions."""

RANDOM_NUMBERS = (r"(?i:\blabel_noise\b)", r"\brounding noise\b", r"\boutputs that are noise\b")
"""Noise that stays, in places where "noise" would else be the perturbation."""


class Ban(NamedTuple):
    word: str
    instead: str
    where: str

    @property
    def pattern(self) -> re.Pattern[str]:
        stem = re.escape(self.word.removesuffix("*")).replace(r"\ ", r"\s+")
        ending = "" if self.word.endswith("*") else r"s?\b"
        return re.compile(rf"\b{stem}{ending}")

    @property
    def names_alone(self) -> bool:
        return "names" in self.where.split(", ")

    def covers(self, path: Path) -> bool:
        named = [one for one in self.where.split(", ") if "/" in one]
        return not named or any(str(path).startswith(one) for one in named)


def rows_of(section: str) -> list[list[str]]:
    """The table under a heading, which must be there and hold rows, or the rules below would hold of nothing."""
    text = GLOSSARY.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:], f"{GLOSSARY.name} has no table under the heading {section!r}"
    return rows[1:]


BANS = [Ban(*row) for row in rows_of("2. Words that are not used")]


def code_files() -> Iterator[Path]:
    for folder in CODE:
        yield from (path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*.py")))


def prose_files() -> Iterator[Path]:
    yield from (Path(name) for name in ("README.md", "CONTRIBUTING.md", "Makefile"))
    for path in sorted((ROOT / "specs").rglob("*.md")):
        if path != GLOSSARY and path.parent.name != "decisions":
            yield path.relative_to(ROOT)


def words_of(text: str) -> str:
    """The text in small letters, with the parts of names told apart."""
    allowed = re.sub("|".join((*PUBLISHED, *RANDOM_NUMBERS)), " ", text)
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", allowed).replace("_", " ")
    return re.sub(r"\n\s*#?\s*", "\n", apart).lower()


def names_in(path: Path) -> str:
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                names.add(name)
    return ";\n".join(sorted(names))


@functools.cache
def words_in(path: Path, names_alone: bool) -> str:
    if names_alone:
        return words_of(names_in(path)) if path.suffix == ".py" else ""
    return words_of((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("ban", BANS, ids=[ban.word for ban in BANS])
def test_a_banned_word_does_not_occur(ban: Ban) -> None:
    files = [path for path in (*code_files(), *prose_files()) if path != THIS_FILE and ban.covers(path)]
    found = [
        f"{path}: {hit[0]!r}, say {ban.instead}"
        for path in files
        for hit in ban.pattern.finditer(words_in(path, ban.names_alone))
    ]
    assert not found


@pytest.mark.parametrize("allowed", (*PUBLISHED, *RANDOM_NUMBERS))
def test_what_is_allowed_for_its_name_is_still_there(allowed: str) -> None:
    files = (path for path in (*code_files(), *prose_files()) if path != THIS_FILE)
    assert any(re.search(allowed, (ROOT / path).read_text(encoding="utf-8")) for path in files)


def test_each_path_of_a_ban_exists() -> None:
    files = [str(path) for path in (*code_files(), *prose_files())]
    paths = [one for ban in BANS for one in ban.where.split(", ") if "/" in one]
    assert not [one for one in paths if not any(name.startswith(one) for name in files)]


@pytest.mark.parametrize("section", ["1. Wordz", "2. Words", "Words that are not used"])
def test_a_heading_that_was_renamed_is_found(section: str) -> None:
    with pytest.raises(AssertionError):
        rows_of(section)


def test_each_word_stands_once_in_the_glossary_and_in_order() -> None:
    words = [row[0] for row in rows_of("1. Words")]
    assert words == sorted(set(words))


def test_no_word_of_the_glossary_is_banned_everywhere() -> None:
    banned = {ban.word for ban in BANS if ban.where == "everywhere"}
    assert not banned & {row[0] for row in rows_of("1. Words")}


def test_a_banned_word_is_found_inside_names_and_across_lines() -> None:
    assert Ban("post office", "", "everywhere").pattern.search(words_of("the post\n    # office"))
    assert Ban("desk", "", "everywhere").pattern.search(words_of("make_desk, ServerDesk"))
    assert Ban("disguis*", "", "everywhere").pattern.search(words_of("undo_disguising"))
    assert not Ban("seat", "", "everywhere").pattern.search(words_of("a seating plan"))
    assert Ban("noise", "", "everywhere").pattern.search(words_of("the noise of --noise, undo_noise"))
    assert not Ban("noise", "", "everywhere").pattern.search(
        words_of("--noise, perturbed.noise, label_noise")
    )
