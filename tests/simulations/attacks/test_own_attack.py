"""An attack from outside the package is named by its place, and is audited and run on recorded views as others are."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.examples.own_attack import LastModel, LoudestRow
from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.cli import main as cli
from veilsum.simulations.attacks.attack import Findings
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.gradient.dlg import Idlg
from veilsum.simulations.attacks.gradient.matching import Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.registry import find_attack
from veilsum.simulations.audit.experiments import rows_of
from veilsum.simulations.audit.fits import require_fit
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.steps import Steps

SMOKE = find_scale("smoke")
ROW, MODEL = (f"tests.examples.own_attack:{name}" for name in ("LoudestRow", "LastModel"))


def test_an_inversion_of_ones_own_has_the_rows_of_the_published_ones() -> None:
    rows = list(rows_of(Request("masked", "server", ROW, SMOKE, parties=3), Steps()))
    by_kind = {row.row: row for row in rows}
    assert by_kind.keys() == {"attack", "undefended", "null", "oracle"}
    assert {row.attack for row in rows} == {ROW}
    assert by_kind["undefended"].ssim == pytest.approx(1.0, abs=1e-3)
    assert next(row for row in rows if row.row == "attack").ssim < 0.3  # type: ignore[operator]


@pytest.mark.parametrize(("scheme", "distance"), [("plain", 0.0), ("ampc", 1.0)])
def test_a_model_found_in_a_view_is_measured_against_the_true_one(scheme: str, distance: float) -> None:
    rows = {row.row: row for row in rows_of(Request(scheme, "server", MODEL, SMOKE), Steps())}
    assert rows["attack"].extra["model_distance"] >= distance
    assert rows["attack"].threat
    assert rows["oracle"].extra["model_distance"] == 0
    assert rows["null"].extra["model_distance"] > 0


def test_what_it_needs_is_asked_before_anything_is_played() -> None:
    with pytest.raises(AttackDoesNotFit):
        require_fit(Request("plain", "client", MODEL, SMOKE))
    with pytest.raises(AttackDoesNotFit):
        require_fit(Request("perturbed", "client", ROW, SMOKE))


@pytest.mark.parametrize(
    "place", ["own_attack:Nothing", "own_attack:Target", "nowhere:Attack", "own_attack:Impersonator"]
)
def test_a_place_without_an_attack_and_a_built_in_name_are_refused(place: str) -> None:
    with pytest.raises(ParameterError) as caught:
        find_attack(f"tests.examples.{place}")
    assert place in str(caught.value)
    assert type(find_attack("idlg")) is Idlg


def test_it_runs_from_the_command_line_on_a_recorded_view(tmp_path: Path) -> None:
    saved, out = tmp_path / "run.view", tmp_path / "out.json"
    assert cli.main(["audit", "run", "--attack", ROW, "--save-view", str(saved)]) == 0
    assert cli.main(["audit", "run", "--attack", ROW, "--view", str(saved), "--json", str(out)]) == 0
    assert [one["row"] for one in json.loads(out.read_text())["rows"]] == ["attack"] * 4 + ["null"]
    assert cli.main(["audit", "run", "--attack", MODEL, "--view", str(saved), "--json", str(out)]) == 0
    assert "model_sha256" in json.loads(out.read_text())["rows"][0]


def test_a_recorded_view_does_not_choose_what_is_imported() -> None:
    facts = next(Request("plain", "server", "analytic", SMOKE).stages()).view("server").facts
    forged = replace(facts, settings={**facts.settings, "scheme": "tests.examples.forged:Scheme"})
    with pytest.raises(AttackDoesNotFit):
        config_of(forged)
    assert "tests.examples.forged" not in sys.modules
    named = replace(facts, settings={**facts.settings, "defence": "tests.examples.forged:Defence"})
    assert config_of(named).defence == ""


def test_an_attack_knows_nothing_of_the_audit() -> None:
    """Attacks are imported without it, so one from outside touches no experiment either."""
    code = (
        "import sys, veilsum.simulations.attacks.registry; "
        "print([name for name in sys.modules if name.startswith('veilsum.simulations.audit')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("found", [None, "flat images"])
def test_an_inversion_that_gives_no_images_of_the_right_shape_is_refused(
    found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = LoudestRow.invert

    def careless(self: LoudestRow, target: Target, budget: Budget, seed: int) -> Reconstruction | None:
        right = published(self, target, budget, seed)
        return None if found is None else replace(right, images=right.images.reshape(target.batch, -1))

    monkeypatch.setattr(LoudestRow, "invert", careless)
    with pytest.raises(LocalProtocolError) as caught:
        list(rows_of(Request("plain", "server", ROW, SMOKE, parties=3, seed=31), Steps()))
    assert "loudest-row" in str(caught.value)


@pytest.mark.parametrize("found", [3, Findings(model=np.zeros(5, np.float32))])
def test_an_attack_that_gives_no_findings_or_another_model_is_refused_by_name(
    found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LastModel, "run", lambda *_: found)
    with refusal(LocalProtocolError, "last-model"):
        list(rows_of(Request("plain", "server", MODEL, SMOKE, parties=3), Steps()))
