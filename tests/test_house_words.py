"""One word per thing: what the glossary bans occurs neither in code nor in texts.

A published name cannot change and stays, by the list below; decisions and the changelog quote older words.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.sources import ROOT

GLOSSARY = ROOT / "specs" / "glossary.md"
CODE = ("protocol", "transport", "roles", "simulations", "tests", "veilsum")
THIS_FILE = Path(__file__).relative_to(ROOT)

PUBLISHED: tuple[str, ...] = (
    r"\blocal[_-]epochs\b",
    r'\b(Rekey\.)?EPOCH\b( = "epoch")?|["`]epoch["`]',  # a value of the setting `rekey`
    r"\bEPOCH_(SHARE|BIAS)\b|\bepoch-(share|bias|biases)\b",  # purposes and tags of key derivation
    r'"epoch_keys"',  # in the file of a view
    r"\b0008-epochs-and-sessions\b",
    r"(?i:\bgathering[-_](keys|shares|releases)\b)",  # phases
    r"--noise\b|\[noise\]|\b(config|args)\.noise\b|\bnoise=(kind|scale)\b|\bnoise: str\b",  # option and setting
    r"\"noise\"|\bnoise ['`]scale|\bnoise \{figures\['noise'\]\}",  # the setting as a key, or with its value
    r"\bperturbed\.noise\b",  # a message kind, and an agreed option
    r"\bpublic-noise\b",  # a domain tag
    r'"noise_secrets"',  # in the file of a view
    r"\bnoise-(line|data-free|exchange|softmax|factors|signs|shared-mask|membership)\b|\bnoise-\*",  # attacks
    r"(?i:\bprotected[_ ](model|inference)\b)|\bprotected_model_of_task\b|--protected\b",  # of `veilsum export`
    r"\bperturbation[./]protected\b",  # the module of it
    r"\.encryptor\(\)",  # of another library
)
"""Options, settings, message kinds, domain tags and file keys that hold a banned word, as regular expressions."""

RANDOM_NUMBERS = (r"(?i:\blabel_noise\b)", r"\brounding noise\b", r"\boutputs that are noise\b")
"""Noise that stays, in places where "noise" would else be the perturbation."""


class Ban(NamedTuple):
    word: str
    instead: str
    where: str

    @property
    def is_class(self) -> bool:
        return self.word[0].isupper()

    @property
    def pattern(self) -> re.Pattern[str]:
        open_ended, word = (
            self.word.endswith("*"),
            re.escape(self.word.removesuffix("*")).replace(r"\ ", r"\s+"),
        )
        if self.is_class:
            return re.compile(rf"\b_?{word}[A-Z]" if open_ended else rf"\b_?{word}\b")
        if open_ended:
            return re.compile(rf"\b{word}")
        mute = "e" if word.endswith("e") else ""
        return re.compile(rf"\b{word.removesuffix('e')}({mute}|{mute}s|es|ed|ers?|ing|y)\b")

    @property
    def names_alone(self) -> bool:
        return "names" in self.where.split(", ")

    def covers(self, path: Path) -> bool:
        named = [one for one in self.where.split(", ") if "/" in one]
        return (not named or begins_with(path, named)) and not begins_with(path, STAYS.get(self.word, []))


def begins_with(path: Path, places: Iterable[str]) -> bool:
    return any(str(path).startswith(one) for one in places)


def rows_of(section: str) -> list[list[str]]:
    """The table under a heading, which must be there and hold rows, or the rules below would hold of nothing."""
    text = GLOSSARY.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:], f"{GLOSSARY.name} has no table under the heading {section!r}"
    return rows[1:]


BANS = [Ban(*row) for row in rows_of("2. Words that are not used")]
STAYS: dict[str, list[str]] = {}
for word, places in rows_of("3. Where a banned word stays"):
    STAYS.setdefault(word, []).extend(places.split(", "))


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
    apart = re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])", " ", allowed
    ).replace("_", " ")
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


def hits(ban: Ban, path: Path) -> Iterator[str]:
    text = (ROOT / path).read_text(encoding="utf-8") if ban.is_class else words_in(path, ban.names_alone)
    yield from (hit[0] for hit in ban.pattern.finditer(text))


@pytest.mark.parametrize("ban", BANS, ids=[f"{ban.word} {ban.where}"[:60] for ban in BANS])
def test_a_banned_word_does_not_occur(ban: Ban) -> None:
    files = [path for path in (*code_files(), *prose_files()) if path != THIS_FILE and ban.covers(path)]
    assert not [f"{path}: {hit!r}, say {ban.instead}" for path in files for hit in hits(ban, path)]


@pytest.mark.parametrize(("word", "place"), [(word, one) for word, places in STAYS.items() for one in places])
def test_a_word_that_stays_somewhere_is_banned_elsewhere_and_occurs_there(word: str, place: str) -> None:
    ban = next(ban for ban in BANS if ban.word == word)
    files = [path for path in (*code_files(), *prose_files()) if begins_with(path, [place])]
    assert any(list(hits(ban, path)) for path in files)


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
    banned = {ban.word for ban in BANS if ban.where == "everywhere"} - STAYS.keys()
    assert not banned & {row[0] for row in rows_of("1. Words")}


def found(word: str, text: str) -> bool:
    ban = Ban(word, "", "everywhere")
    return bool(ban.pattern.search(text if ban.is_class else words_of(text)))


def test_a_banned_word_is_found_inside_names_and_across_lines() -> None:
    assert found("post office", "the post\n    # office")
    assert found("disguis*", "undo_disguising")
    assert found("noise", "the noise of --noise, undo_noise")
    assert not found("noise", "--noise, perturbed.noise, label_noise")


@pytest.mark.parametrize("name", ["make_desk", "ServerDesk", "HTTPDesk", "DESKS", "_Desk2"])
def test_a_banned_word_is_found_in_every_form_of_a_name(name: str) -> None:
    assert found("desk", name)


@pytest.mark.parametrize("inflected", ["noises", "noisy", "noised", "noising", "Noisy"])
def test_a_banned_word_is_found_in_its_inflections(inflected: str) -> None:
    assert found("noise", f"a {inflected} model")
    assert not found("station", "a stationary point")


def test_the_name_of_a_class_is_found_as_it_is_written() -> None:
    assert found("PublicPart", "the PublicPart of it")
    assert not found("PublicPart", "the public part of it")
    assert found("Collecting*", "class _CollectingServer:")
    assert not found("Collecting*", "Collecting is a phase")
