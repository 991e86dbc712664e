"""The page of a round file by file comes from traced runs, and the committed one is current."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from veilsum.simulations.docs import walk
from veilsum.simulations.docs.traced import CARRYING, STARTING, Tracer

ONLY_IN_TROUBLE = {
    "protocol/schemes/ampc/stalled.py",
    "protocol/schemes/ampc/passing.py",
    "protocol/secure_sum/passing.py",
}
"""Modules that a round in which all are honest, and nobody stops, never enters."""


def listed(repository: Path) -> list[str]:
    return re.findall(
        r"^- `([\w/.]+)`", (repository / "specs" / walk.PAGE).read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_committed_page_lists_only_files_that_exist_as_they_describe_themselves(repository: Path) -> None:
    page = (repository / "specs" / walk.PAGE).read_text(encoding="utf-8")
    assert listed(repository)
    for file in listed(repository):
        assert (repository / file).is_file()
        assert f"- `{file}`: {walk.first_sentence(repository / file)}\n" in page


def test_the_committed_page_passes_through_every_module_of_the_schemes_that_it_walks(
    repository: Path,
) -> None:
    """A module that moves or is added shows here; whether the page is current in all else, the long test says."""
    rooms = ("schemes/masked", "schemes/ampc", "secure_sum")
    modules = {
        str(path.relative_to(repository))
        for room in rooms
        for path in (repository / "protocol" / room).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert len(modules) > 15
    assert modules - set(listed(repository)) == ONLY_IN_TROUBLE


def test_the_committed_page_has_no_trace_of_the_machine_that_drew_it(repository: Path) -> None:
    page = (repository / "specs" / walk.PAGE).read_text(encoding="utf-8")
    assert not re.search(r"/tmp|/home|site-packages|localhost|\d+\.\d+ s\b", page)


@pytest.mark.long
def test_the_committed_page_is_what_a_traced_run_draws(repository: Path) -> None:
    """If this fails, run `make docs`."""
    assert (repository / "specs" / walk.PAGE).read_text(encoding="utf-8") == walk.walk_page()


def test_without_a_broker_the_page_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(walk, "find_mosquitto", lambda: None)
    monkeypatch.setattr(walk, "find_spec", lambda name: None)
    walk.write_page(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "no MQTT broker" in capsys.readouterr().err


def test_a_file_is_noted_once_at_its_first_visit(tmp_path: Path) -> None:
    from veilsum.protocol.crypto.domains import domain_tag
    from veilsum.protocol.identifiers import require_party_id

    record = tmp_path / "some.visits"
    with record.open("w", encoding="utf-8") as open_record:
        before = sys.getprofile()
        sys.setprofile(Tracer(open_record))
        try:
            domain_tag("hello")
            require_party_id("p1")
            domain_tag("hello")
        finally:
            sys.setprofile(before)
    assert walk.read_walk(record) == [(STARTING, ["protocol/crypto/domains.py", "protocol/identifiers.py"])]


def test_what_the_transport_visits_beside_the_machine_stands_last_and_by_name(tmp_path: Path) -> None:
    record = tmp_path / "some.visits"
    record.write_text(
        f"starting\tb.py\n{CARRYING}\tz.py\n{CARRYING}\tb.py\n{CARRYING}\tc.py\nserver, opening\ta.py\n",
        encoding="utf-8",
    )
    assert walk.read_walk(record) == [
        ("starting", ["b.py"]),
        ("server, opening", ["a.py"]),
        (CARRYING, ["c.py", "z.py"]),
    ]
