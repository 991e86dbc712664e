"""The pages for people: links lead somewhere, and examples show what the commands really print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from veilsum.roles.cli.main import main

WIDEST_LINE = 160
PLAN = ["plan", "--parties", "100", "--max-weight", "1000", "--clip", "8", "--bits", "64"]


def pages(repository: Path) -> list[Path]:
    return [*repository.glob("*.md"), *repository.glob("specs/**/*.md")]


def test_every_relative_link_leads_to_a_file(repository: Path) -> None:
    broken = [
        f"{page.relative_to(repository)}: {target}"
        for page in pages(repository)
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


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
