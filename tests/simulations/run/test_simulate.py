"""Whole federations in memory: what `veilsum simulate` promises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilsum
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.cli.main import main
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.run.report import describe
from veilsum.simulations.run.simulate import SimulationResult, simulate
from veilsum.transport.errors import BadSetting
from veilsum.transport.memory.faults import Crash, Faults

SECURE = ("mpc", "ampc", "masked")
ROUGH = "drop=0.1,duplicate=0.1,reorder=0.2,corrupt=0.05,delay=0.1"


def vectors(scheme: str, **changes: Any) -> FederationConfig:
    return replace(FederationConfig(scheme=scheme, task="vectors:12", rounds=2, seed=7), **changes)


def require_sound(result: SimulationResult, rounds: int) -> None:
    """The recorder has checked sums and agreement as it went; what is left is that the run came to its end."""
    assert result.failed is None
    assert [one.round for one in result.rounds] == list(range(1, rounds + 1))
    assert all(one.exact for one in result.rounds)
    finished = {node.name for node in result.simulation.nodes.values() if node.ended is not None}
    assert finished == {node.name for node in result.simulation.nodes.values() if node.alive}


def test_every_secure_scheme_ends_with_the_same_model_bytes() -> None:
    """ampc, mpc and masked all compute the exact fixed-point average, so their models are identical."""
    models = {scheme: simulate(vectors(scheme)).model.tobytes() for scheme in SECURE}
    assert len(set(models.values())) == 1


@pytest.mark.parametrize("scheme", SECURE)
def test_digits_reaches_the_metric_of_plain(scheme: str) -> None:
    """On a real task the metric equals that of plain FedAvg in every printed digit."""
    config = FederationConfig(scheme=scheme, task="digits", rounds=2, seed=7)
    figures = simulate(config, compare="plain").figures()
    assert f"{figures['metric']:.4f}" == f"{figures['baseline_metric']:.4f}"
    assert figures["exact_ring_sum"] is True
    assert figures["max_abs_error"] < 1e-9


def test_plain_weighs_by_the_same_rule_as_the_scheme_it_is_compared_with() -> None:
    """Three rules, three models where counts differ, each as near to plain as float32 allows."""
    models = set()
    for weights in ("samples", "bucketed", "equal"):
        config = FederationConfig(
            scheme="masked", task="digits", split="dirichlet:0.5", rounds=1, seed=3, weights=weights
        )
        result = simulate(config, compare="plain")
        assert result.figures()["exact_ring_sum"] is True
        assert result.baseline is not None and result.baseline.model is not None
        assert np.abs(result.model - result.baseline.model).max() < 1e-6
        models.add(result.model.tobytes())
    assert len(models) == 3


@pytest.mark.parametrize("scheme", ["masked", "ampc", "mpc"])
def test_two_of_eight_lost_at_upload_cost_no_attempt(scheme: str) -> None:
    """The round goes on without the vanished, in the same attempt, with the same model bytes for every scheme."""
    config = vectors(scheme, parties=tuple(f"p{i}" for i in range(1, 9)))
    result = simulate(config, drop="2@upload")
    require_sound(result, 2)
    assert result.recorder.attempts == 2
    assert len(result.rounds[0].members) == 6


@pytest.mark.parametrize("scheme", SECURE)
def test_a_party_may_vanish_in_any_phase(scheme: str) -> None:
    """Whatever the phase, the run ends with all rounds committed by those who stayed."""
    for phase in vectors(scheme).load_scheme().drop_points:
        result = simulate(vectors(scheme), drop=f"1@{phase}")
        require_sound(result, 2)
        lost = [node.name for node in result.simulation.participants if not node.alive]
        assert len(result.rounds[1].members) == 5 - len(lost), phase


def test_a_loss_in_a_phase_that_never_came_is_told() -> None:
    """Nobody is asked to reveal where nothing is contested, so nobody is lost there, and the report says so."""
    result = simulate(vectors("ampc"), drop="1@reveal")
    assert not result.figures()["lost"]
    (warning,) = result.figures()["warnings"]
    assert "drop 1@reveal" in warning
    assert f"warning: {warning}" in describe(result)
    assert not simulate(vectors("ampc"), drop="1@upload").figures()["warnings"]


@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_without_recovery_one_missing_upload_ends_the_run_by_name(scheme: str) -> None:
    result = simulate(vectors(scheme, recovery="none"), drop="1@upload")
    assert result.failed is not None
    assert result.failed.reason is AbortReason.MISSING_UPLOAD
    assert result.failed.culprit in result.figures()["lost"]
    assert not result.rounds
    assert result.figures()["abort_culprit"] == result.failed.culprit
    (told,) = (line for line in describe(result).splitlines() if line.startswith("ABORTED"))
    assert result.failed.culprit is not None
    require_mentions(told, "recovery", result.failed.culprit)
    assert told.endswith(result.failed.detail)


def test_who_refused_what_of_whom_is_told_in_text_and_json() -> None:
    """Each reason once, with how often, the most frequent first; a calm run has none."""
    calm, rough = (
        simulate(vectors("ampc")),
        simulate(vectors("masked"), drop="2@shares"),
    )
    assert calm.figures()["refusals"] == []
    found = rough.figures()["refusals"]
    assert found
    assert sum(one["count"] for one in found) == rough.figures()["refused_messages"]
    assert [one["count"] for one in found] == sorted((one["count"] for one in found), reverse=True)
    first = found[0]
    (told,) = (
        line
        for line in describe(rough).splitlines()
        if f"{first['party']} refused" in line and first["why"] in line
    )
    require_mentions(told, first["sender"], first["kind"])


@pytest.mark.parametrize("scheme", ["plain", *SECURE])
def test_a_rough_network_changes_nothing(scheme: str) -> None:
    """Lost, doubled, delayed, damaged and overtaken datagrams are repaired below the machines."""
    calm = simulate(vectors(scheme)).model.tobytes()
    for seed in range(2):
        rough = Faults.parse(ROUGH)
        result = simulate(vectors(scheme), faults=replace(rough, crashes=()))
        assert result.failed is None, seed
        assert result.model.tobytes() == calm


@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_a_party_that_comes_back_joins_a_later_round(scheme: str) -> None:
    """A crashed party is done without, and takes part again once it is back, with the current model."""
    config = vectors(scheme, rounds=6, training_s=5.0, phase_s=5.0, opening_s=5.0, patience_s=20.0)
    done_without = 0
    for crash_at in (0.2, 0.25, 0.3, 0.35):
        result = simulate(config, faults=Faults(crashes=(Crash("p2", crash_at, 3.0),)))
        require_sound(result, 6)
        assert "p2" in result.rounds[-1].members, crash_at
        done_without += sum("p2" not in one.members for one in result.rounds)
    assert done_without


def test_a_run_is_a_function_of_its_seed() -> None:
    """The same configuration gives the same rounds, bytes and times; another seed gives others."""

    def story(seed: int) -> tuple[Any, ...]:
        result = simulate(vectors("ampc", seed=seed), faults=ROUGH, drop="1@upload")
        return tuple((one.members, one.model_hash, one.bytes_up, one.virtual_s) for one in result.rounds)

    assert story(3) == story(3)
    assert story(3) != story(4)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scheme=st.sampled_from(SECURE), data=st.data())
def test_hundred_seeds_of_faults_violate_no_invariant(seed: int, scheme: str, data: st.DataObject) -> None:
    """Under any seed of the fault simulation sums are exact, finishers agree, and every run ends for a reason."""
    run_seed(seed, scheme, data.draw(st.sampled_from(["", "1@upload", "1@shares", "2@upload"])))


def run_seed(seed: int, scheme: str, drop: str) -> None:
    """One seed of the fault simulation; a failing one reproduces from its numbers alone."""
    config = vectors(
        scheme,
        seed=seed,
        threat="lying" if seed % 2 else "semi-honest",
        graph="complete" if scheme == "masked" else ("complete", "ring")[seed // 2 % 2],
        shares=("seeded", "tensor")[seed // 4 % 2],
        bits=(32, 64)[seed // 8 % 2],
        training_s=60.0,
        patience_s=120.0,
    )
    result = simulate(config, faults=ROUGH, drop=drop or None)
    assert result.simulation.server.ended is not None, (seed, scheme, drop)
    assert result.failed is not None or len(result.rounds) == 2, (seed, scheme, drop)


@pytest.mark.long
@pytest.mark.parametrize("scheme", SECURE)
def test_two_thousand_seeds_of_faults(scheme: str) -> None:
    for seed in range(2000):
        run_seed(seed, scheme, ("", "1@upload", "1@shares", "2@upload")[seed % 4])


def test_the_server_of_ampc_sees_uniform_words_and_the_peers_the_model() -> None:
    config = FederationConfig(scheme="ampc", task="digits", rounds=2, seed=7)
    saw = simulate(config).figures()["saw"]
    assert "uniform words" in saw[SERVER]
    server_accuracy = float(saw[SERVER].rsplit(" ", 1)[1])
    peer_accuracy = float(saw["peer"].rsplit(" ", 1)[1])
    assert server_accuracy < 0.3 < 0.8 < peer_accuracy


def test_payloads_agree_where_the_arithmetic_does() -> None:
    """Averaging deltas of the same training moves the model to the average of the models, up to rounding."""
    config = FederationConfig(scheme="masked", task="digits", rounds=1, seed=7)
    by_model, by_delta = simulate(config).model, simulate(replace(config, payload="delta")).model
    assert np.abs(by_model - by_delta).max() < 1e-6
    gradient = simulate(replace(config, payload="gradient", local_epochs=None))
    assert gradient.failed is None


def test_a_federation_file_and_python_give_the_same_run(tmp_path: Path) -> None:
    config = vectors("masked")
    path = tmp_path / "federation.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert veilsum.simulate(path).model.tobytes() == veilsum.simulate(config).model.tobytes()


def test_the_command_prints_the_table_and_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    words = "simulate --scheme ampc --parties 5 --rounds 2 --task vectors:20 --seed 7 --json"
    assert main([*words.split(), str(target)]) == 0
    figures = json.loads(target.read_text(encoding="utf-8"))
    expected = {"scheme", "parties", "rounds", "task", "seed", "metric", "baseline_metric", "model_sha256"}
    expected |= {"baseline_sha256", "max_abs_error", "exact_ring_sum", "bytes_up_over_plain"}
    expected |= {"bytes_down_over_plain", "attempts", "aborted", "total_cpu_s"}
    assert expected <= figures.keys()
    assert len(figures["rounds"]) == 2
    assert "nothing but uniform words" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--scheme nope", "scheme nope"),
        ("--scheme masked --drop 1@foo", "N@PHASE"),
        ("--scheme masked --drop 9@upload", "5 parties"),
        ("--scheme ampc --parties 2", "min_parties"),
        ("--scheme ampc --graph edges:p1-p2,p2-p3,p3-p4,p4-p5", "too thin"),
        ("--scheme masked --schedule round-robin", "round-robin"),
        ("--scheme mpc --bias common --recovery none", "mpc bias"),
        ("--scheme masked --faults drop=2", "probability"),
        ("--rounds 0", "rounds 1"),
        ("--task nope", "task nope"),
    ],
)
def test_bad_requests_exit_with_2_before_any_message(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--task", "vectors:5", *words.split()]) == 2
    require_mentions(capsys.readouterr().err, *says.split())


def test_a_scheme_from_outside_the_package_is_simulated_by_its_name(
    monkeypatch: pytest.MonkeyPatch, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module in the current folder registers its scheme and gets the command, faults and losses for free."""
    monkeypatch.chdir(repository)
    words = "simulate --scheme tests.examples.ballot:ballot --task vectors:9 --rounds 2"
    assert main([*words.split(), "--faults", ROUGH]) == 0
    assert "bit for bit" in capsys.readouterr().out


def test_bad_faults_are_refused_in_python_too() -> None:
    with pytest.raises(BadSetting):
        simulate(vectors("plain"), faults="explode=1")
    with pytest.raises(ParameterError):
        simulate(vectors("plain"), compare="nothing")
