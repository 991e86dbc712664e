"""`veilsum simulate --lie`: what must be shown of a lie, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import require_mentions
from veilsum.protocol.schemes.registry import find_scheme, scheme_names
from veilsum.roles.cli.main import main
from veilsum.simulations.lies.registry import LIES, schemes_of
from veilsum.simulations.testing import tell_lie

CHAINED = ("masked", "mpc", "ampc")


def simulate(*arguments: str) -> int:
    return main(["simulate", "--parties", "8", "--rounds", "4", "--seed", "3", *arguments])


def figures(capsys: pytest.CaptureFixture[str], scheme: str, lie: str, task: str = "vectors:30") -> Any:
    assert simulate("--scheme", scheme, "--task", task, "--lie", lie, "--json", "-") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("scheme", CHAINED)
@pytest.mark.parametrize(
    ("lie", "reasons"),
    [
        ("server:shift", {"SUM_FALSIFIED"}),
        ("server:still-model", {"REPLAY"}),
        ("server:other-model", {"WRONG_MODEL", "SUM_FALSIFIED"}),
        ("server:two-lists", {"DIFFERENCING"}),
    ],
)
def test_the_figures_say_what_was_noticed_of_a_lying_server(
    capsys: pytest.CaptureFixture[str], scheme: str, lie: str, reasons: set[str]
) -> None:
    found = figures(capsys, scheme, lie, "vectors:1000")
    assert found["lie"] == lie
    assert found["falsified_commits"] == 0
    assert found["noticed"]
    assert {one["reason"] for one in found["noticed"]} <= reasons
    assert all(one.keys() == {"party", "reason", "detail", "culprit"} for one in found["noticed"])


def test_the_figures_name_the_author_of_a_wrong_share(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "masked", "client:share")
    assert found["named"] == found["liars"] == ["p1"]
    assert found["committed"] == [1, 2, 3, 4]
    assert found["abort_reason"] is None


def test_the_figures_have_the_typed_reason_of_a_spoiled_sum(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "ampc", "client:count")
    assert found["abort_reason"] == "CHECK_FAILED"
    assert found["committed"] == found["rounds"] == []


def test_the_lie_that_succeeds_is_called_the_printed_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--scheme", "masked", "--task", "vectors:30", "--lie", "server+client:shift") == 0
    said = capsys.readouterr().out
    require_mentions(said, "falsified", 28, "limit", "colludes")


def test_the_list_has_every_lie_with_its_schemes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--lie", "list", "--json", "-"]) == 0
    heard = capsys.readouterr()
    require_mentions(heard.err, *LIES)
    listed = json.loads(heard.out)["lies"]
    assert {one["name"]: tuple(one["schemes"]) for one in listed} == {
        name: schemes_of(lie) for name, lie in LIES.items()
    }


@pytest.mark.parametrize(
    ("scheme", "lie", "mentioned"),
    [
        ("masked", "server:shfit", "server:shift"),
        ("plain", "server:shift", "plain"),
        ("masked", "peer:rounds-done", "masked"),
        ("ampc", "server:crafted-model", "ampc"),
    ],
)
def test_an_unknown_or_senseless_lie_is_a_bad_request(
    capsys: pytest.CaptureFixture[str], scheme: str, lie: str, mentioned: str
) -> None:
    assert simulate("--scheme", scheme, "--task", "vectors:30", "--lie", lie) == 2
    heard = capsys.readouterr()
    require_mentions(heard.err, mentioned)
    assert not heard.out


def test_the_page_has_the_table_of_all_lies(repository: Path) -> None:
    page = (repository / "specs/lies.md").read_text(encoding="utf-8")
    built_in = {one for one in scheme_names() if type(find_scheme(one)).__module__.startswith("veilsum.")}
    for name, lie in LIES.items():
        schemes = ", ".join(one for one in schemes_of(lie) if one in built_in)
        assert f"| `{name}` | {schemes} | {lie.does} |\n" in page
        assert f"| `{name}` | {lie.noticed_as} |\n" in page


def test_the_example_on_the_page_runs(repository: Path) -> None:
    page = (repository / "specs/lies.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(compile(example, "<specs/lies.md>", "exec"), names)
    assert names["tell_lie"] is tell_lie
    assert names["report"].falsified_commits == 0
