"""The pages for people: links lead somewhere, and examples show what the commands really print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import source_files
from veilsum.roles.cli.main import main

WIDEST_LINE = 160
PLAN = ["plan", "--parties", "100", "--max-weight", "1000", "--clip", "8", "--bits", "64"]


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


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file that each relative link of a page leads to, and the anchor in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield (page.parent / file if file else page), anchor


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
    cited = re.compile(r"(specs/[\w./-]+\.md)(?:#([\w-]+)|,?\s+(?:#\s+)?sections?\s+(\d+))?")
    wrong = [
        f"{path}: {found[0]}"
        for path in source_files()
        for found in cited.finditer((repository / path).read_text(encoding="utf-8"))
        if not (page := repository / found[1]).is_file()
        or (found[2] and found[2] not in anchors(page))
        or (found[3] and found[3] not in section_numbers(page))
    ]
    assert not wrong


def test_lines_stay_short_except_where_a_table_row_cannot_be_broken(repository: Path) -> None:
    wide = [
        f"{page.relative_to(repository)}:{number}"
        for page in pages(repository)
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > WIDEST_LINE and not line.startswith("|")
    ]
    assert not wide


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
