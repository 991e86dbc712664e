"""Pages for people, and docstrings: links lead somewhere, names name what exists, examples show what commands print."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import veilsum
from tests.support.sources import FOLDERS, files_of_tests, parse, source_files
from veilsum.roles.cli.main import main

WIDEST_LINE = 160
EVERY_FILE = [Path("veilsum/__init__.py"), *source_files(), *files_of_tests()]
PLAN = ["plan", "--parties", "100", "--max-weight", "1000", "--clip", "8", "--bits", "64"]

GENERATED = {"specs/machines.md", "specs/walk.md", "specs/figures/audit.md", "specs/figures/ppc.md"}
"""Pages that programs write; a row of theirs may be wide."""
FOREIGN = {"LimitNOFILE", "RuleBasedStateMachine", "Sequential", "Shamir"}
"""Names of other libraries and programs that pages use."""
IMPLEMENTED = {
    "keys": "",
    "numbers": "",
    "chain": "7",
    "protocol": "",
    "sharing-and-graphs": "",
    "wire-format": "1 8 9",
    "transport": "3",
    "perturbation": "1",
    "learning": "",
    "tasks": "",
    "defences": "",
    "attacks": "",
    "measures": "",
    "schemes": "3",
    "testing": "",
    "lies": "",
    "invitations": "",
    "page": "",
}
"""Pages that code implements, each with the sections that say nothing to implement: notation, overviews, vectors."""
HARD = {
    *("protocol/crypto", "protocol/graphs", "protocol/secure_sum"),
    *("protocol/perturbation/algebra", "protocol/perturbation/tracing"),
    *("protocol/schemes/ampc", "protocol/schemes/masked", "protocol/schemes/perturbed"),
}
"""Rooms in which every file implements a section."""
REMOVED = {"protocol/transcript.py"}
"""Files that a decision is about because they are gone."""


def pages(repository: Path) -> list[Path]:
    return [*repository.glob("*.md"), *repository.glob("specs/**/*.md")]


def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What may stand behind # in a link to the page, by GitHub's rule."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings(page)}


def section_numbers(page: Path) -> set[str]:
    return {found[1] for title in headings(page) if (found := re.match(r"(\d+)\. ", title))}


def citations(file: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Each page that a file names, with the anchor or the numbers of the sections that it names there."""
    number = r"\d+(?:(?:,|\s+and)\s+\d+)*"
    cited = re.compile(rf"(specs/[\w./-]+\.md)(?:#([\w-]+)|,?\s+(?:#\s+)?sections?\s+({number}))?")
    for found in cited.finditer(file.read_text(encoding="utf-8")):
        yield found[1], found[2] or "", re.findall(r"\d+", found[3] or "")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file that each relative link of a page leads to, and the anchor in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield (page.parent / file if file else page), anchor


def hand_written(repository: Path) -> list[Path]:
    """Pages that name code and are not drawn from it; the changelog tells of names that are gone."""
    left_out = {repository / "CHANGELOG.md", repository / "specs" / "walk.md"}
    return [page for page in pages(repository) if page not in left_out]


def spans(page: Path) -> Iterator[str]:
    """What stands between single backticks, code blocks left out."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text))


@functools.cache
def members() -> dict[str, set[str]]:
    """Each class or type of the product and its tests, with the names in its body and in those of its bases."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in (*source_files(), *files_of_tests()):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(names_bound_in(node))
                bases.setdefault(node.name, set()).update(
                    one.id for one in node.bases if isinstance(one, ast.Name)
                )
        for name in names_bound_in(parse(path)):
            own.setdefault(name, set())
    return {name: own[name].union(*(own.get(base, set()) for base in bases.get(name, ()))) for name in own}


def names_bound_in(place: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in place.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (one.asname or one.name for one in names)


def is_named(dotted: str, repository: Path) -> bool:
    """Whether a dotted name is a folder or a module of ours, or a name in one."""
    whole = repository / dotted.removeprefix("veilsum.").replace(".", "/")
    if (
        whole.is_dir()
        or whole.with_suffix(".py").is_file()
        or dotted.removeprefix("veilsum.") in veilsum.__all__
    ):
        return True
    module = whole.parent.with_suffix(".py")
    module = module if module.is_file() else whole.parent / "__init__.py"
    return module.is_file() and whole.name in names_bound_in(ast.parse(module.read_text(encoding="utf-8")))


def docstrings(tree: ast.Module) -> Iterator[str]:
    """What stands as a text of its own: of modules, classes, functions and fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                yield said


def gone_from(said: str, repository: Path) -> Iterator[str]:
    """The modules, their names and the Python files that a docstring tells of and that are not there."""
    named = re.compile(
        rf"(?<![\w./])(?:veilsum|{'|'.join(FOLDERS)}|tests)(?:\.[A-Za-z_]\w*)+(?::\w+)?(?!\w*/)"
    )
    for found in named.findall(said):
        if not found.endswith(".py") and not is_named(found.replace(":", "."), repository):
            yield found
    for found in re.findall(r"(?<![\w.])[\w*/-]+\.py\b", said):
        if not any(file.match(found) for file in EVERY_FILE):
            yield found


def test_every_module_and_file_that_a_docstring_names_exists(repository: Path) -> None:
    gone = {
        f"{path}: {name}"
        for path in EVERY_FILE
        for said in docstrings(parse(path))
        for name in gone_from(said, repository)
    }
    assert not gone


def test_a_name_in_a_docstring_that_leads_nowhere_is_found(repository: Path) -> None:
    there = "`roles.learning.contract.Learner`, veilsum.protocol.schemes, roles/cli/table.py, house.py, test_house_*.py"
    assert not list(gone_from(there, repository))
    for wrong in ("roles.learner.Learner", "veilsum.roles.learning.contract:Lerner", "protocol.wire.codecs"):
        assert list(gone_from(f"See `{wrong}`.", repository)) == [wrong]
        assert list(gone_from(f"See {wrong}, which", repository)) == [wrong]
    for wrong in ("roles/cli/tables.py", "tabels.py"):
        assert list(gone_from(f"as {wrong} says", repository)) == [wrong]


def test_every_relative_link_leads_to_a_file_and_a_heading(repository: Path) -> None:
    broken = [
        f"{page.relative_to(repository)}: {file}#{anchor}"
        for page in pages(repository)
        for file, anchor in links(page)
        if not file.exists() or (anchor and anchor not in anchors(file))
    ]
    assert not broken


def test_the_index_has_every_page_of_the_specification(repository: Path) -> None:
    index = repository / "specs" / "README.md"
    listed = {file.resolve() for file, _ in links(index)}
    decisions = repository / "specs" / "decisions"
    missing = [page for page in (repository / "specs").rglob("*.md") if page not in listed | {index}]
    assert [page for page in missing if decisions not in page.parents] == []


def test_every_section_that_code_cites_exists(repository: Path) -> None:
    wrong = [
        f"{path}: {page} {anchor} {numbers}"
        for path in source_files()
        for page, anchor, numbers in citations(repository / path)
        if not (file := repository / page).is_file()
        or (anchor and anchor not in anchors(file))
        or not set(numbers) <= section_numbers(file)
    ]
    assert not wrong


@pytest.mark.parametrize("name", IMPLEMENTED)
def test_a_section_is_cited_by_the_code_that_implements_it_or_listed_as_nothing_to_implement(
    repository: Path, name: str
) -> None:
    cited = {
        number
        for path in source_files()
        for page, _, numbers in citations(repository / path)
        if page == f"specs/{name}.md"
        for number in numbers
    }
    idle = set(IMPLEMENTED[name].split())
    assert cited.isdisjoint(idle)
    assert cited | idle == section_numbers(repository / "specs" / f"{name}.md")


def test_every_file_of_a_room_that_is_hard_cites_a_section(repository: Path) -> None:
    hard = [path for path in source_files() if str(path.parent) in HARD and path.name != "__init__.py"]
    assert {str(path.parent) for path in hard} == HARD
    assert not [path for path in hard if not any(numbers for *_, numbers in citations(repository / path))]


def test_every_module_that_a_page_names_exists(repository: Path) -> None:
    ours = re.compile(rf"((?:veilsum|{'|'.join(FOLDERS)}|tests)(?:\.\w+)+)(?::(\w+))?(?:$|\W)")
    named = [
        (page.name, ".".join(filter(None, found.groups())))
        for page in hand_written(repository)
        for span in spans(page)
        if (found := ours.match(span)) and not span.endswith(".py")
    ]
    assert ("schemes.md", "veilsum.protocol.schemes") in named
    assert not [(page, name) for page, name in named if not is_named(name, repository)]


def test_every_python_file_that_a_page_names_exists(repository: Path) -> None:
    """As its path, or the end of one that the page makes clear; a star stands for any letters."""
    named = {
        (page.name, found[0])
        for page in hand_written(repository)
        for span in spans(page)
        if (found := re.fullmatch(r"[\w*./-]+\.py", span))
    }
    assert ("schemes.md", "tests/examples/ballot.py") in named
    files = [*source_files(), *files_of_tests()]
    gone = [
        (page, name)
        for page, name in named
        if not (repository / name).is_file() and not any(file.match(name) for file in files)
    ]
    assert {name for _, name in gone} == REMOVED, gone


def test_every_class_that_a_page_names_exists_and_has_the_member_named_with_it(repository: Path) -> None:
    named = {
        (page.name, found[1], found[2])
        for page in hand_written(repository)
        for span in spans(page)
        if (found := re.match(r"([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\(|$)", span))
    }
    assert ("perturbation.md", "Forward", "features") in named
    classes = members()
    assert not {
        one
        for one in named
        if one[1] not in FOREIGN and (one[1] not in classes or (one[2] and one[2] not in classes[one[1]]))
    }


def test_lines_of_pages_that_people_write_stay_short(repository: Path) -> None:
    wide = [
        f"{page.relative_to(repository)}:{number}"
        for page in pages(repository)
        if str(page.relative_to(repository)) not in GENERATED
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > WIDEST_LINE
    ]
    assert not wide


def test_the_index_says_which_pages_are_generated(repository: Path) -> None:
    index = (repository / "specs" / "README.md").read_text(encoding="utf-8")
    table = index.partition("| generated page |")[2].partition("\n\n")[0]
    assert {f"specs/{name}" for name in re.findall(r"\]\(([\w/-]+\.md)\)", table)} == GENERATED


def test_the_plan_in_the_readme_is_what_the_command_prints(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(PLAN) == 0
    shown = f"$ veilsum {' '.join(PLAN)}\n{capsys.readouterr().out}"
    assert shown in (repository / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_only_make_targets_that_exist(repository: Path) -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (repository / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        name
        for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
        for name in re.findall(r"make ([a-z][a-z-]+)[`\s,]", (repository / page).read_text(encoding="utf-8"))
        if f"`make {name}`" in (repository / page).read_text(encoding="utf-8")
    }
    assert named
    assert named <= targets
