"""A defence from outside the package is named by its place, and works wherever a built-in one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.examples.odd_defences import KeeperGuard
from tests.examples.own_defence import ClippedSigns
from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.defended import defended
from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.schemes.plain import PlainUpdate
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.defences.packing import unpack
from veilsum.roles.learning.defences.parse import Defences, find_part, parse_defence
from veilsum.roles.learning.defences.sketch.settings import Sketch
from veilsum.simulations.audit.experiments import rows_of
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.sweeps.ppc import grid_of
from veilsum.simulations.run.simulate import simulate

PLACE = "tests.examples.own_defence:ClippedSigns"
OWN_LOOP, KEEPER, SECOND = (
    f"tests.examples.odd_defences:{name}" for name in ("OwnLoop", "Keeper", "SecondKeeper")
)


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ParameterError) as caught:
        parse_defence(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (PLACE, ClippedSigns()),
        (f"{PLACE}:step=0.25", ClippedSigns(0.25)),
        (f"tests.examples.own_defence:ClippedSigns: step=1e-2 + {'sketch'}", ClippedSigns(0.01)),
    ],
)
def test_it_is_named_by_its_place_with_settings_behind_a_colon(text: str, made: ClippedSigns) -> None:
    read = parse_defence(text)
    assert read.parts[0] == made
    assert parse_defence(str(read)) == read


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{PLACE}:step=2", "step must be a number above 0 to 1"),
        (f"{PLACE}:stop=1", "did you mean step"),
        ("tests.examples.own_defence:Nothing", "has no dataclass Nothing"),
        ("tests.examples.own_defence:Number", "has no dataclass Number"),
        ("tests.examples.nowhere:ClippedSigns", "cannot be imported"),
        ("tests.examples.own_defence:Impostor", "a name of its own"),
    ],
)
def test_what_is_wrong_with_it_is_said_as_of_any_other(text: str, words: str) -> None:
    (problem,) = problems_of(text)
    assert words in problem


def test_it_cannot_take_over_a_built_in_name() -> None:
    problems_of("tests.examples.own_defence:Impostor")
    (part,) = parse_defence("spn").parts
    assert type(part).__module__ == "veilsum.roles.learning.defences.spn.settings"


@pytest.mark.parametrize("scheme", ["perturbed", "bilateral"])
def test_a_scheme_that_perturbs_refuses_it_too(scheme: str) -> None:
    (problem, *_) = Defences((ClippedSigns(),)).problems(FederationConfig(scheme=scheme))
    assert "exact gradient" in problem


def test_it_runs_in_a_simulation_and_its_warning_is_told() -> None:
    config = FederationConfig(
        defence=PLACE, model="mlp2:8", rounds=1, parties=("a", "b", "c"), scheme="plain"
    )
    outcome = simulate(config)
    assert len(outcome.rounds) == 1
    assert any("shows every sign" in words for words in outcome.federation.defence_notes())


def test_the_audit_attacks_uploads_that_are_signs() -> None:
    request = Request("plain", "server", "analytic", find_scale("smoke"), defence=f"{PLACE}:step=0.5")
    view = next(request.stages()).view("server")
    for _, message in view.received(PlainUpdate):
        assert set(np.unique(message.payload)) <= {np.float32(-0.5), np.float32(0), np.float32(0.5)}
    attacked, undefended = (
        next(row for row in rows_of(request, Steps()) if row.row == kind) for kind in ("attack", "undefended")
    )
    assert attacked.defence == f"{PLACE}:step=0.5"
    assert undefended.ssim is not None
    assert attacked.ssim is not None
    assert attacked.ssim < undefended.ssim


def test_its_curve_walks_the_parameter_it_names() -> None:
    assert [text for _, text in grid_of(PLACE, 2)] == [f"{PLACE}:step=0.001", f"{PLACE}:step=0.1"]


@pytest.mark.parametrize("text", ["dp:sigma=1,clip=1+" + OWN_LOOP, OWN_LOOP + "+dp:sigma=1,clip=1"])
def test_two_training_loops_are_refused_so_that_neither_is_dropped_in_silence(text: str) -> None:
    with refusal(ParameterError, "dp", "own-loop"):
        defended(text)


def test_one_training_loop_goes_with_defences_that_bring_none() -> None:
    assert defended(OWN_LOOP + "+dp:sigma=1+spn").notes(1) == []


def test_a_guard_keeps_its_state_under_the_name_of_its_defence_whatever_it_calls_itself() -> None:
    party = defended(f"spn+{KEEPER}+{SECOND}")
    party.train(party.initial_model(), 0)
    kept = unpack(party.state(), "the state")["guards"]
    alone = defended("spn")
    alone.train(alone.initial_model(), 0)
    assert kept == {
        "spn": unpack(alone.state(), "the state")["guards"]["spn"],
        "keeper": b"kept",
        "second-keeper": b"kept",
    }
    again = defended(f"spn+{KEEPER}+{SECOND}", secret=2)
    again.restore(party.state())
    assert again.state() == party.state()
    assert {one.restored for one in again.guards.values() if isinstance(one, KeeperGuard)} == {b"kept"}


@needs_mosquitto
def test_launched_processes_take_it(tmp_path: Path) -> None:
    folder, here = tmp_path / "fed", Path(__file__).parents[4]
    options = (
        "--task digits --model mlp2:8 --parties 3 --scheme plain --rounds 1 --batch-size all --broker-port "
    )
    options += str(free_port())
    for command in (f"init {folder} --defence {PLACE} {options}", f"launch {folder}"):
        done = subprocess.run(
            [sys.executable, "-m", "veilsum", *command.split()],
            env={**os.environ, "PYTHONPATH": str(here)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
    assert "shows every sign" in done.stdout + done.stderr


def test_looking_for_a_built_in_part_imports_nothing_that_the_text_names() -> None:
    """Texts of recorded views are read this way."""
    code = (
        "import sys; from veilsum.roles.learning.defences.parse import find_part; "
        "from veilsum.roles.learning.defences.sketch.settings import Sketch; "
        f"print(find_part('{PLACE}+sketch:ratio=4', Sketch), 'tests.examples.own_defence' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Sketch(ratio=4) False"
    assert find_part("dp:sigma=1", Sketch) is None
