"""The server's step on a mean: torch's own optimisers, as a function of what they remember."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.schemes import Plain
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.learning.contract import FloatVector, apply_update
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.server_step import ServerStep
from veilsum.roles.learning.training.server_optimizer import ServerOptimizer, optimizers, read_optimizer
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import layout, to_vector
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.simulate import simulate
from veilsum.simulations.run.simulation import Simulation
from veilsum.transport.memory.faults import Crash, Faults

OPTIONS = TrainingOptions(
    payload="gradient", learning_rate=0.05, schedule="step:every=2,factor=0.5", server_optimizer="adam"
)
BY_MATRIX_ONLY = "muon"


def network() -> torch.nn.Module:
    return build_model("mlp3:8", (5,), 2, seed=3)


def means(count: int, size: int) -> list[Any]:
    return list(np.random.default_rng(5).standard_normal((count, size)))


def optimizer_for(text: str, module: torch.nn.Module | None = None, **changes: Any) -> ServerOptimizer:
    options = replace(OPTIONS, server_optimizer=text, **changes)
    return ServerOptimizer(options, layout(module or network()))


@pytest.mark.parametrize("name", [name for name in optimizers() if name != BY_MATRIX_ONLY])
def test_every_step_is_the_one_that_torch_takes_without_interruption(name: str) -> None:
    """The memory goes through bytes after every step, and nothing is lost on the way."""
    module = network().double()
    theirs = optimizers()[name](list(module.parameters()), lr=OPTIONS.learning_rate)
    ours, memory = to_vector(network()), b""
    step = optimizer_for(name).step
    for round_, mean in enumerate(means(5, ours.size)):
        ours, memory = step(ours, mean, round_, memory)
        theirs.param_groups[0]["lr"] = OPTIONS.learning_rate_at(round_)
        for entry, parameter in zip(layout(network()), module.parameters(), strict=True):
            parameter.grad = torch.from_numpy(mean[entry.start : entry.stop]).reshape(entry.shape)
        theirs.step()
        for parameter in module.parameters():
            parameter.data = parameter.data.float().double()
    expected = np.concatenate([one.detach().reshape(-1).numpy() for one in module.parameters()])
    assert np.array_equal(ours, expected.astype(np.float32))


def test_an_optimiser_of_matrices_steps_where_all_parameters_are_matrices() -> None:
    module = torch.nn.Linear(5, 3, bias=False)
    before = to_vector(module)
    after, memory = optimizer_for(BY_MATRIX_ONLY, module).step(before, np.ones(15), 0, b"")
    assert memory and not np.array_equal(before, after)
    with pytest.raises(ParameterError, match="2D"):
        optimizer_for(BY_MATRIX_ONLY)


def test_running_statistics_move_as_without_an_optimiser() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    before = to_vector(module)
    mean = np.linspace(-1, 1, before.size)
    after, _ = optimizer_for("adam", module).step(before, mean, 0, b"")
    plain = apply_update(before, mean, "gradient", OPTIONS.learning_rate)
    buffers = next(entry.start for entry in layout(module) if entry.kind == "buffer")
    assert np.array_equal(after[buffers:], plain[buffers:])
    assert not np.allclose(after[:buffers], plain[:buffers])


def test_a_delta_is_a_gradient_that_points_the_other_way() -> None:
    before = to_vector(network())
    mean = means(1, before.size)[0]
    along, _ = optimizer_for("sgd:lr=0.5,momentum=0.9", payload="delta").step(before, mean, 0, b"")
    assert np.allclose(along, before + 0.5 * mean, atol=1e-6)


def test_a_repeated_attempt_leaves_no_trace() -> None:
    before = to_vector(network())
    first, second, other = means(3, before.size)

    def run(*attempts: list[Any]) -> FloatVector:
        server_step, model = ServerStep(OPTIONS, optimizer_for("adam")), before
        for round_, tried in enumerate(attempts):
            model = [server_step.apply(model, mean, round_) for mean in tried][-1]
        return model

    assert np.array_equal(run([first], [second]), run([other, first], [other, second]))
    assert not np.array_equal(run([first], [second]), run([other], [second]))


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_round_without_a_step_keeps_model_and_memory(skipped: int) -> None:
    """The steps before and after it are those of a run without that round."""
    options = replace(OPTIONS, schedule="constant")
    model, fewer = to_vector(network()), to_vector(network())
    server_step, reference = (
        ServerStep(options, ServerOptimizer(options, layout(network()))) for _ in range(2)
    )
    given: list[Any] = means(2, model.size)
    for round_, mean in enumerate(given):
        fewer = reference.apply(fewer, mean, round_)
    given.insert(skipped, None)
    for round_, mean in enumerate(given):
        model = server_step.apply(model, mean, round_)
    assert np.array_equal(model, fewer)


def test_a_round_without_the_memory_of_those_before_is_refused() -> None:
    with refusal(LocalProtocolError, "round", 5, "adam", "checkpoint"):
        ServerStep(OPTIONS, optimizer_for("adam")).apply(to_vector(network()), means(1, 130)[0], 4)


def test_a_damaged_memory_is_refused() -> None:
    model = to_vector(network())
    with pytest.raises(LocalProtocolError, match="damaged"):
        optimizer_for("adam").step(model, np.zeros(model.size), 1, b"nothing of the kind")


def test_a_step_to_infinity_is_refused() -> None:
    model = to_vector(network())
    with pytest.raises(LocalProtocolError, match="infinite"):
        optimizer_for("sgd:momentum=0.9", learning_rate=1e30).step(model, np.full(model.size, 1e30), 0, b"")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adan", "mean adam"),
        ("lbfgs", "many times"),
        ("sparseadam", "sparseadam.* dense"),
        ("adam:beta=0.9", "lr, betas"),
        ("adam:betas=0.9", "0.9/0.999"),
        ("adam:amsgrad=1", "true or false"),
        ("adam:eps=small", "a number"),
        ("adam:eps", "KEY=VALUE"),
        ("adam:eps=1,eps=2", "KEY=VALUE"),
    ],
)
def test_what_cannot_step_is_refused_with_a_remedy(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        read_optimizer(text)


def test_ranges_are_torchs_own() -> None:
    with pytest.raises(ParameterError, match="Invalid beta"):
        optimizer_for("adam:betas=2/0.999")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scheme": "plain", "payload": "model"}, "gradient or delta"),
        ({"scheme": "plain", "payload": "gradient", "schedule": "round-robin"}, "averages nothing"),
        ({"scheme": "plain", "payload": "gradient", "task": "vectors:8"}, "has no parameters"),
    ],
)
def test_federations_that_cannot_remember_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        FederationConfig(server_optimizer="adam", **changes).require_workable()


class PeersAlone(Plain):
    """Neither its server nor a chain has what a peer that joins would need."""

    name = "peers-alone"
    server_holds_model = False


def test_a_scheme_in_which_nobody_hands_the_memory_on_is_refused() -> None:
    with refusal(ParameterError, "server_optimizer", "PeersAlone", "chain"):
        config(f"{__name__}:PeersAlone").require_workable()


def test_a_delta_needs_a_rate_of_its_own() -> None:
    with refusal(ParameterError, "lr", "adam:lr=0.01"):
        Federation.build(config("plain", payload="delta"))


def config(scheme: str, **changes: Any) -> FederationConfig:
    settings: dict[str, Any] = {
        "parties": party_names(3),
        "rounds": 4,
        "learning_rate": 0.01,
        "server_optimizer": "adam:eps=0.001",
        "payload": "gradient",
        "device": "cpu",
        **changes,
    }
    return FederationConfig(scheme=scheme, **settings)


@pytest.mark.parametrize("scheme", ["perturbed", "bilateral", "masked"])
def test_training_with_adam_at_the_server_ends_where_plain_ends(scheme: str) -> None:
    figures = simulate(config(scheme), compare="plain").figures()
    assert not figures["aborted"]
    assert figures["metric"] == pytest.approx(figures["baseline_metric"], abs=0.003)
    assert figures["baseline_distance"] < 1e-4


def test_rounds_that_rounding_left_nothing_of_do_not_end_a_run_with_an_optimiser() -> None:
    """Under bilateral an opened sum cannot be opened again: with the draws of this seed the first round closes without
    a step, and the next steps.
    """
    figures = simulate(config("bilateral", loss="mse", gamma=600.0, seed=2)).figures()
    assert any("closed without a step" in warning for warning in figures["warnings"])
    assert not figures["aborted"]
    assert [one["loss"] is None for one in figures["rounds"]] == [True, False, False, False]


def test_a_server_that_crashes_goes_on_with_what_its_optimiser_remembers() -> None:
    def run(faults: Faults) -> Recorder:
        federation = Federation.build(config("perturbed", opening_s=1.0, phase_s=1.0, training_s=1.0))
        recorder = Recorder(federation)
        simulation = Simulation(federation, faults, observer=recorder)
        simulation.run()
        assert [one.round for one in recorder.rounds] == [1, 2, 3, 4]
        assert simulation.nodes[SERVER].disk.life == len(faults.crashes)
        return recorder

    undisturbed = run(Faults())
    half_time = undisturbed.rounds[1].virtual_s + 1e-6
    disturbed = run(Faults(crashes=(Crash(SERVER, half_time, half_time + 0.5),)))
    assert undisturbed.model is not None and disturbed.model is not None
    assert np.allclose(disturbed.model, undisturbed.model, atol=1e-5)
