"""Every example runs as it stands, from another folder, and shows what it promises."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.sources import ROOT

FOLDER = ROOT / "simulations" / "examples"
SHOWN = {
    "compare_schemes": ("plain", "mpc", "ampc", "masked", "uniform"),
    "own_task": ("together", "alone"),
    "lost_parties": ("round 1", "round 3", "lost:", "exact: True"),
    "own_defence": ("step 0.01", "step  0.5", "without"),
    "property_test": ("masked:", "invariant"),
}


def test_every_example_is_listed_and_run() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert files == set(SHOWN)
    told = (FOLDER / "__init__.py").read_text()
    assert all(f"simulations/examples/{name}.py" in told for name in files)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert all(words in shown for words in SHOWN[name])
