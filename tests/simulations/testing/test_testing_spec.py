"""The examples on the pages about testing, schemes, attacks and engines are what the code does."""

from __future__ import annotations

import ast
import inspect
import re
import unittest
from pathlib import Path
from typing import Any

from tests.examples import ballot, own_attack
from veilsum.protocol.machines.scheme import Scheme
from veilsum.simulations.attacks.attack import Attack
from veilsum.simulations.testing import RoundsUnderFaults


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_every_example_about_testing_runs(repository: Path) -> None:
    names: dict[str, Any] = {}
    for example in examples(repository / "specs/testing.md"):
        # In angle brackets, or what looks for the source of a test would read the page as Python.
        exec(compile(example, "<specs/testing.md>", "exec"), names)
    names["test_the_sum_is_right_or_absent"]()
    assert issubclass(names["TestMasked"], unittest.TestCase)
    assert names["first"].members == ("p0", "p2", "p3", "p4")


def test_the_example_of_an_engine_runs(repository: Path) -> None:
    (example,) = examples(repository / "specs/engines.md")
    names: dict[str, Any] = {}
    exec(compile(example, "<specs/engines.md>", "exec"), names)
    assert hasattr(names["Threads"], "submit")


def test_the_invariants_on_the_page_are_those_that_are_checked(repository: Path) -> None:
    from veilsum.simulations.testing import invariants

    page = (repository / "specs/testing.md").read_text(encoding="utf-8")
    stated = re.findall(r"^ *(I\d+)  (.*)$", invariants.__doc__ or "", re.MULTILINE)
    assert [name for name, _ in stated] == ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I9", "I10"]
    assert all(f"| {name} | {text} |" in page for name, text in stated)


def test_the_excerpts_about_schemes_are_parts_of_the_example(repository: Path) -> None:
    """Line by line, leaving out what is elided."""
    source = inspect.getsource(ballot)
    for example in examples(repository / "specs/schemes.md")[:3]:
        ast.parse(example)
        for line in example.splitlines():
            shown = line.split(" ...")[0].rstrip().removesuffix(",")
            assert shown in source, line


def test_the_example_of_an_attack_is_a_part_of_the_example_file(repository: Path) -> None:
    (example,) = examples(repository / "specs/attacks.md")
    assert example in inspect.getsource(own_attack)


def test_every_field_of_an_attack_is_explained(repository: Path) -> None:
    page = (repository / "specs/attacks.md").read_text(encoding="utf-8")
    fields = {name for name in Attack.__annotations__ if not name.startswith("_")}
    assert {"name", "by", "needs_gradient"} <= fields
    assert not {name for name in fields if f"`{name}`" not in page}


def test_every_attribute_of_a_scheme_is_explained(repository: Path) -> None:
    page = (repository / "specs/schemes.md").read_text(encoding="utf-8")
    public = {name for name in (*vars(Scheme), *Scheme.__annotations__) if not name.startswith("_")}
    assert {"name", "learns", "server_round", "server_setup"} <= public
    assert not {name for name in public if name not in page}


def test_the_stateful_test_is_one_line_for_a_scheme_from_outside() -> None:
    from veilsum.simulations.testing import rounds_under_faults

    assert issubclass(rounds_under_faults(ballot.Ballot.name), RoundsUnderFaults)
