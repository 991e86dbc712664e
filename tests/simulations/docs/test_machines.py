"""The page of machines is drawn from the tables, and the committed one is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilsum.protocol.schemes.registry import find_scheme
from veilsum.simulations.docs.__main__ import main
from veilsum.simulations.docs.machines import PAGE, machines_page, write_page


def test_the_committed_page_is_what_the_tables_say(repository: Path) -> None:
    """If this fails, run `make docs`."""
    assert (repository / "specs" / PAGE).read_text(encoding="utf-8") == machines_page()


@pytest.mark.parametrize("scheme", ["plain", "masked", "mpc", "ampc"])
def test_every_phase_of_every_machine_is_on_the_page(scheme: str) -> None:
    page = machines_page()
    for name, machine in find_scheme(scheme).machines.items():
        assert name.lower() in page.lower()
        assert all(phase.value in page for phase in machine.table.phases)


def test_a_scheme_from_outside_does_not_get_onto_the_page() -> None:
    from tests.examples import ballot

    assert ballot.Ballot.name not in machines_page()


def test_the_page_is_written_into_the_folder(tmp_path: Path) -> None:
    write_page(tmp_path)
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == machines_page()


def test_the_command_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
