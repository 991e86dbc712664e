"""Schemes from outside get all that a scheme of the package gets: one masks, one perturbs, one brings equipment, one
hides nothing."""

from __future__ import annotations

import ast
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.examples import ballot, bounded, metered, open_mean
from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.federations import QUICK
from tests.support.refusals import refusal
from veilsum.protocol import schemes
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError
from veilsum.protocol.schemes import Carried, Committed
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.audit.report.verdicts import HOLDS, LEAKS, judge
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.runner import run_requests
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.run.invariants import InvariantViolated
from veilsum.simulations.run.simulate import simulate
from veilsum.simulations.testing import rounds_under_faults

EXAMPLES = Path(ballot.__file__).parent
BALLOT, BOUNDED = "tests.examples.ballot:Ballot", "tests.examples.bounded:Bounded"
METERED, OPEN_MEAN = "tests.examples.metered:Metered", "tests.examples.open_mean:OpenMean"
SMALL: dict[str, Any] = {
    "task": "synthetic-regression",
    "parties": ("p1", "p2", "p3"),
    "rounds": 2,
    "device": "cpu",
}
ROUGH = "drop=0.1,duplicate=0.1,delay=0.1"
GAMES = settings(
    max_examples=5, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def config_of(scheme: str, **changes: Any) -> FederationConfig:
    return FederationConfig(scheme=scheme, **{**SMALL, **changes})


@pytest.mark.parametrize("module", ["ballot", "bounded", "metered", "open_mean"])
def test_an_example_imports_nothing_of_the_package_but_its_schemes(module: str) -> None:
    tree = ast.parse((EXAMPLES / f"{module}.py").read_text(encoding="utf-8"))
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    names = {
        name
        for one in imports
        for name in (
            [one.module or ""] if isinstance(one, ast.ImportFrom) else [each.name for each in one.names]
        )
    }
    assert {name for name in names if name.partition(".")[0] == "veilsum"} == {"veilsum.protocol.schemes"}


def test_what_the_page_about_schemes_calls_is_imported_from_the_schemes() -> None:
    page = (EXAMPLES.parents[1] / "specs" / "schemes.md").read_text(encoding="utf-8")
    for name in ("derive_key", "apply_masks", "pair_mask_key", "mask_upload", "NextPhase", "TermCheck"):
        assert f"`{name}`" in page
        assert name in schemes.__all__
    assert all(hasattr(schemes, name) for name in schemes.__all__)


def test_a_class_and_the_name_it_is_registered_under_are_the_same_scheme() -> None:
    assert config_of(BALLOT).load_scheme() is config_of("tests.examples.ballot:ballot").load_scheme()
    assert config_of(BOUNDED).load_scheme() is find_scheme("bounded")


@pytest.mark.parametrize(("name", "remedy"), [("Balot", "Ballot"), ("Vote", "extends"), ("x", "registered")])
def test_a_name_that_is_no_scheme_of_its_module_is_refused_with_the_nearest_class(
    name: str, remedy: str
) -> None:
    with refusal(ParameterError, f"tests.examples.ballot:{name}", "tests.examples.ballot", remedy):
        config_of(f"tests.examples.ballot:{name}").load_scheme()


def test_a_masking_example_opens_the_sum_that_masked_opens() -> None:
    ours, theirs = (simulate(config_of(name, task="vectors:9")) for name in (BALLOT, "masked"))
    assert ours.figures()["model_sha256"] == theirs.figures()["model_sha256"]


def test_an_example_in_clear_learns_what_plain_learns() -> None:
    ours, theirs = (simulate(config_of(name)) for name in (OPEN_MEAN, "plain"))
    assert ours.figures()["model_sha256"] == theirs.figures()["model_sha256"]


def test_a_perturbing_example_learns_what_perturbed_learns() -> None:
    ours, theirs = (simulate(config_of(name)) for name in (BOUNDED, "perturbed"))
    assert ours.figures()["model_sha256"] == theirs.figures()["model_sha256"]


def test_a_subclass_of_a_perturbing_scheme_keeps_the_settings_of_the_perturbation() -> None:
    chosen = {"noise": "scale", "groups": 3, "gamma": 0.5}
    ours, theirs = (config_of(name, **chosen).parameters(5).options for name in (BOUNDED, "perturbed"))
    assert ours == theirs
    assert config_of(BOUNDED).upload == "gradient"
    assert config_of(BOUNDED).cohort_floor == 1


@pytest.mark.parametrize("changes", [{"defence": "spn"}, {"payload": "delta"}, {"gamma": -1.0}])
def test_what_perturbed_refuses_its_subclass_refuses(changes: dict[str, Any]) -> None:
    for name in ("perturbed", BOUNDED):
        with pytest.raises(ParameterError):
            config_of(name, **changes).require_workable()


def test_a_setting_of_an_example_is_agreed_on_and_decides() -> None:
    with pytest.raises(ParameterError):
        config_of(BOUNDED, options={"largest": "many"}).require_workable()
    result = simulate(config_of(BOUNDED, options={"largest": "1e-9"}))
    assert not result.rounds
    assert result.failed is not None


def test_equipment_that_a_scheme_brings_is_what_its_machines_work_with() -> None:
    ours, theirs = (simulate(config_of(name, task="vectors:9")) for name in (METERED, "masked"))
    assert ours.figures()["model_sha256"] == theirs.figures()["model_sha256"]
    assert set(ours.federation.equipment) == {"server", "p1", "p2", "p3"}
    assert all(metered.meter_of(one).used == 2 for one in ours.federation.equipment.values())


def test_equipment_that_a_scheme_brings_decides() -> None:
    result = simulate(config_of(METERED, task="vectors:9", options={"uploads": "1"}))
    assert len(result.rounds) == 1
    told = [failure.detail for name, failure in result.recorder.failures if name == "p1"]
    assert any("uploads is 1" in text for text in told)


@pytest.mark.parametrize("at_server", [True, False])
def test_a_machine_without_the_equipment_of_its_scheme_is_refused(at_server: bool) -> None:
    with pytest.raises(metered.LocalProtocolError):
        config_of(METERED).load_scheme().require_equipment(None, at_server=at_server)


def test_a_masking_example_meets_faults_of_the_network() -> None:
    calm, rough = (simulate(config_of(BALLOT, task="vectors:9"), faults=faults) for faults in (None, ROUGH))
    assert calm.figures()["model_sha256"] == rough.figures()["model_sha256"]


def test_a_perturbing_example_goes_on_without_a_lost_party() -> None:
    result = simulate(config_of(BOUNDED), drop="1@upload", faults=ROUGH)
    assert [len(one.members) for one in result.rounds] == [2, 2]


@pytest.mark.parametrize(
    ("scheme", "how"),
    [
        ("ballot", {}),
        ("bounded", {"tolerated_crashes": 1}),
        ("metered", {"tolerated_crashes": 1}),
        ("open-mean", {}),
    ],
)
def test_the_invariants_hold_whatever_is_lost_late_repeated_or_forged(
    scheme: str, how: dict[str, Any]
) -> None:
    run_state_machine_as_test(rounds_under_faults(scheme, **how), settings=GAMES)


@pytest.mark.parametrize(
    ("scheme", "uploads", "aggregate"),
    [(BALLOT, HOLDS, LEAKS), (METERED, HOLDS, LEAKS), (BOUNDED, LEAKS, LEAKS), (OPEN_MEAN, LEAKS, None)],
)
def test_what_the_server_sees_of_an_example_is_attacked_and_judged(
    scheme: str, uploads: str, aggregate: str | None
) -> None:
    """Under masks single uploads hold, and the sum of four images gives them back; in clear every upload leaks."""
    request = Request(scheme, "server", "idlg", find_scale("smoke"), model="mlp2:64")
    rows = run_requests([request]).rows
    found = {row.target.partition(" of ")[0]: judge(row, rows)[0] for row in rows if row.row == "attack"}
    assert found == {"one upload": uploads, **({} if aggregate is None else {"aggregate": aggregate})}


def attack_on_open_mean(seed: int) -> list[Row]:
    model = "mlp2:64"
    request = Request(OPEN_MEAN, "server", "idlg", find_scale("smoke"), seed, model=model, references=False)
    return list(run_requests([request]).rows)


def test_of_a_scheme_that_does_not_say_what_its_messages_carry_the_longest_vector_is_attacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(open_mean.OpenMean, "carries")
    (row,) = attack_on_open_mean(11)
    assert judge(row, [row])[0] == LEAKS


def test_uploads_that_cannot_be_read_are_not_said_to_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Carried(np.ones(3))
    monkeypatch.setattr(open_mean.OpenMean, "carries", lambda self, message: short)
    with pytest.raises(AttackDoesNotFit) as caught:
        attack_on_open_mean(12)
    assert "`carries`" in str(caught.value)


def test_the_undefended_row_of_masks_is_the_scheme_that_the_masked_one_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = 'name, unmasked = "veiled", "bounded"'
    (tmp_path / "veiled.py").write_text(TAKEN.format(base="Bilateral", body=body))
    monkeypatch.syspath_prepend(tmp_path)
    request = Request("veiled:Bilateral", "server", "noise-shared-mask", find_scale("smoke"), model="mlp2:16")
    rows = {row.row: row for row in run_requests([request]).rows}
    assert rows["undefended"].scheme == "bounded"
    assert rows["undefended"].success_rate == 1.0


@needs_mosquitto
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("module", "scheme", "task"),
    [
        ("ballot", "./ballot.py:Ballot", "vectors:9"),
        ("bounded", "./bounded.py:Bounded", "synthetic-regression"),
        ("metered", "./metered.py:Metered", "vectors:9"),
        ("open_mean", "./open_mean.py:OpenMean", "vectors:9"),
    ],
)
def test_an_example_is_launched_over_mqtt_from_the_file_it_lies_in(
    module: str, scheme: str, task: str, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / f"{module}.py", tmp_path)
    slow = {name: 5 * seconds for name, seconds in QUICK.items()}
    words = f"init fed --scheme {scheme} --task {task} --parties 3 --rounds 1 --device cpu --broker-port {free_port()}"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in slow.items()]
    run(tmp_path, *words.split(), *flags)
    run(tmp_path, "launch", "fed", "--json", "out.json")
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [one["members"] for one in figures["rounds"]] == [["p1", "p2", "p3"]]
    if module == "ballot":
        run(tmp_path, "simulate", "fed/federation.toml", "--json", "memory.json")
        in_memory = json.loads((tmp_path / "memory.json").read_text())
        assert figures["model_sha256"] == in_memory["model_sha256"]


def test_a_recorded_view_of_an_example_is_attacked_by_whoever_names_its_scheme(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "open_mean.py", tmp_path)
    words = (
        "audit run --scheme ./open_mean.py:OpenMean --attack idlg --scale smoke --images 1 --json out.json"
    )
    attack = words.split()
    run(tmp_path, *attack, "--model", "mlp2:16", "--save-view", "server.view")
    run(tmp_path, *attack, "--view", "server.view")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert len([row for row in rows if row["row"] == "attack" and "one upload" in row["target"]]) == 4
    with pytest.raises(AssertionError, match=r"open_mean\.py:OpenMean"):
        run(tmp_path, "audit", "run", "--view", "server.view", "--attack", "idlg")


def run(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "veilsum", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


TAKEN = """
from veilsum.protocol.schemes import {base}

class {base}({base}):
    {body}
"""


@pytest.mark.parametrize("base", ["Perturbed", "Masked"])
def test_a_class_of_a_user_never_takes_the_name_of_a_scheme_of_the_package(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"taking_{base.lower()}.py").write_text(TAKEN.format(base=base, body="pass"))
    monkeypatch.syspath_prepend(tmp_path)
    before = find_scheme(base.lower())
    with pytest.raises(ParameterError) as caught:
        config_of(f"taking_{base.lower()}:{base}").load_scheme()
    assert f"taking_{base.lower()}:{base}" in str(caught.value)
    assert find_scheme(base.lower()) is before


def test_a_scheme_that_is_named_by_its_class_need_not_be_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unregistered.py").write_text(TAKEN.format(base="Masked", body='name = "unregistered"'))
    monkeypatch.syspath_prepend(tmp_path)
    result = simulate(config_of("unregistered:Masked", task="vectors:9"))
    assert len(result.rounds) == 2


OWN_PERTURBATION = """
    name, perturbs, announces_next_hash = "own-perturbation", True, False
    def equipment_of(self, party, parameters):
        return dict(parameters.options)
    def parting_model(self, model, equipment, random, *, completed):
        return 0 * model
"""


def test_a_perturbing_scheme_with_equipment_of_its_own_has_no_settings_of_another_and_any_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works on vectors, which have no network to trace, and its options are its own."""
    (tmp_path / "perturbing.py").write_text(TAKEN.format(base="Plain", body=OWN_PERTURBATION.strip()))
    monkeypatch.syspath_prepend(tmp_path)
    result = simulate(config_of("perturbing:Plain", task="vectors:9", gamma=0.5, payload="delta"))
    assert len(result.rounds) == 2
    assert list(result.federation.equipment.values()) == [{}] * 4


def test_a_perturbing_scheme_without_any_equipment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = OWN_PERTURBATION.strip().replace("equipment_of", "unused")
    (tmp_path / "unequipped.py").write_text(TAKEN.format(base="Plain", body=bare.replace("own-", "no-")))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LocalProtocolError):
        simulate(config_of("unequipped:Plain"))


def test_a_server_of_which_the_scheme_tells_no_sum_is_said_to_form_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in (("telling", "pass"), ("silent", "carries = lambda self, message: None")):
        (tmp_path / f"{name}.py").write_text(TAKEN.format(base="Ampc", body=f'name = "{name}"; {body}'))
    monkeypatch.syspath_prepend(tmp_path)
    telling, silent = (simulate(config_of(f"{name}:Ampc")).figures()["saw"] for name in ("telling", "silent"))
    learns = find_scheme("ampc").learns
    assert telling["server"].startswith(f"{learns['server']}; test ")
    assert silent["server"] == learns["server"]
    assert silent["peer"] == telling["peer"] != learns["peer"]


@pytest.mark.parametrize("body", ["learns = None", 'options = ("speed")'])
def test_a_scheme_that_does_not_say_what_is_learned_or_has_a_text_as_options_is_refused(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"unsaid_{body.partition(' ')[0]}"
    (tmp_path / f"{name}.py").write_text(TAKEN.format(base="Masked", body=f'name = "{name}"; {body}'))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ParameterError):
        config_of(f"{name}:Masked").load_scheme()


WRONG_OUTCOMES = {
    "a member who gave nothing": {"members": ("p1", "p2", "p3", "p4")},
    "a sum of another length": {"total": np.zeros(3, dtype=np.uint64)},
}


@pytest.mark.parametrize("changes", WRONG_OUTCOMES.values(), ids=WRONG_OUTCOMES)
def test_an_outcome_that_cannot_be_ends_a_simulation_by_the_invariant_of_sums(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed(*args: Any) -> Committed:
        return dataclasses.replace(Committed(*args), **changes)

    monkeypatch.setattr(open_mean, "Committed", committed)
    with pytest.raises(InvariantViolated) as caught:
        simulate(config_of(OPEN_MEAN, task="vectors:9"))
    assert caught.value.name == "I1"


@pytest.mark.parametrize(
    "text", ["no.such:Thing", "tests.examples.ballot:Urn", "tests.examples.ballot:nothing", ":x"]
)
def test_what_names_no_scheme_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        config_of(text).require_workable()
    assert text in str(caught.value)


def test_a_term_beyond_the_agreed_limit_is_refused_by_the_server() -> None:
    with pytest.raises(bounded.Rejection) as caught:
        bounded.require_bounded(bounded.np.ones(3), {"largest": "0.5"})
    assert caught.value.reason is AbortReason.OVER_BUDGET
