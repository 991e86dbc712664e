"""The step that every party can take: named in the settings, agreed on by all, kept in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.refusals import refusal
from tests.support.scalar_steps import ScalarStep
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.protocol.numbers.step_kinds import STEP_KINDS
from veilsum.protocol.schemes.registry import find_scheme, scheme_names
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.learning.contract import apply_update, sha256_of
from veilsum.roles.learning.factory import make_step_optimizer
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.server_step import ServerStep
from veilsum.roles.learning.training.party_step import PartyStep, make_step, read_step
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import layout, to_vector
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.simulate import simulate
from veilsum.simulations.run.simulation import Simulation
from veilsum.transport.memory.faults import Crash, Faults

BUILT_IN = [name for name in scheme_names() if type(find_scheme(name)).__module__.startswith("veilsum.")]
BY_PARTIES = [name for name in BUILT_IN if find_scheme(name).has_chain]
BY_THE_SERVER = [name for name in BUILT_IN if not find_scheme(name).has_chain]


class RecorderOfSums(Recorder):
    """Keeps what the server committed in each round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sums: dict[int, RoundCommitted] = {}

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if party == SERVER and isinstance(event, RoundCommitted):
            self.sums[event.round] = event
        super().noted(now, party, event)


def config(scheme: str, step: str, **changes: Any) -> FederationConfig:
    settings: dict[str, Any] = {
        "parties": party_names(4),
        "rounds": 4,
        "task": "vectors:50",
        "payload": "delta",
        **changes,
    }
    return FederationConfig(scheme=scheme, server_optimizer=step, **settings)


def hash_of(scheme: str, step: str, **changes: Any) -> bytes:
    return config(scheme, step, **changes).parameters(10).config_hash


def test_participants_of_the_schemes_that_open_a_sum_to_all_can_take_the_step() -> None:
    assert (BY_PARTIES, BY_THE_SERVER) == (["ampc", "masked", "mpc"], ["bilateral", "perturbed", "plain"])


@pytest.mark.parametrize("scheme", BY_PARTIES)
@pytest.mark.parametrize("step", ["adamw", "sgdm:lr=1", "Adam", "lbfgs"])
def test_a_step_that_parties_cannot_take_is_refused_with_those_they_can(scheme: str, step: str) -> None:
    with refusal(ParameterError, *STEP_KINDS, "torch", "plain", "perturbed", "bilateral"):
        config(scheme, step).require_workable()


@pytest.mark.parametrize(
    ("step", "named"),
    [
        ("adam:weight_decay=0.1", "betas"),
        ("adam:eps=1,tau=1", "tau"),
        ("adam:lr=0", "lr"),
        ("adam:lr=nan", "lr"),
        ("yogi:tau=0", "tau"),
        ("sgd:momentum=0.9", "KEY=VALUE"),
        ("adam", "adam:lr=0.01"),
    ],
)
def test_settings_of_a_step_that_do_not_fit_are_refused_by_name(step: str, named: str) -> None:
    with refusal(ParameterError, named):
        config("masked", step).require_workable()


def test_settings_are_read_as_they_are_written() -> None:
    assert read_step("adam:lr=0.5,betas=0.8/0.9,eps=1e-4") == (
        STEP_KINDS["adam"](betas=(0.8, 0.9), eps=1e-4),  # type: ignore[call-arg]  # of the kind that is named
        0.5,
    )
    assert read_step("yogi") == (STEP_KINDS["yogi"](), None)


@pytest.mark.parametrize("scheme", BY_PARTIES)
def test_the_settings_of_the_step_are_in_what_all_parties_agree_on(scheme: str) -> None:
    hashes = [
        hash_of(scheme, "sgd"),
        hash_of(scheme, "sgd:lr=0.5"),
        hash_of(scheme, "sgd:lr=0.25"),
        hash_of(scheme, "momentum:lr=0.5"),
        hash_of(scheme, "adam:lr=0.5"),
        hash_of(scheme, "adam:lr=0.5,eps=1e-7"),
        hash_of(scheme, "adam:lr=0.5,tau=1e-7"),
        hash_of(scheme, "sgd", learning_rate=0.2),
        hash_of(scheme, "sgd", lr_schedule="cosine:rounds=3"),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hash_of(scheme, "adam:lr=0.5") == hash_of(scheme, "adam:lr=0.50,betas=0.9/0.999")


@pytest.mark.parametrize("scheme", BY_THE_SERVER)
def test_a_step_of_the_server_alone_is_not_among_the_parameters(scheme: str) -> None:
    assert config(scheme, "sgd", task="digits", payload="gradient").parameters(10).step == ""


@pytest.mark.parametrize(
    "step", ["sgd:lr=0.5", "momentum:lr=0.5", "adam:lr=0.01", "adagrad:lr=0.1", "yogi:lr=0.1"]
)
def test_a_masked_run_takes_the_named_step_on_every_mean(step: str) -> None:
    """Followed by hand from the means of the sums that were opened."""
    federation = Federation.build(config("masked", step))
    recorder = RecorderOfSums(federation)
    Simulation(federation, Faults(), observer=recorder).run()
    name, _, rate = step.partition(":lr=")
    by_hand, model = ScalarStep(name, {}, "delta", 50), [float(one) for one in federation.initial_model]
    assert sorted(recorder.sums) == [0, 1, 2, 3]
    for _, event in sorted(recorder.sums.items()):
        assert event.total is not None
        mean, _ = federation.parameters.encoding.decode_mean(event.total, len(event.members))
        model = by_hand.apply(model, [float(one) for one in mean], float(rate), 0.1)
    assert recorder.model is not None
    assert recorder.model.tobytes() == np.array(model, dtype=np.float32).tobytes()


@pytest.mark.parametrize("step", ["sgd:lr=0.5", "momentum:lr=0.5", "adam:lr=0.01"])
def test_peers_and_a_server_that_take_the_same_step_hold_the_same_bytes(step: str) -> None:
    found = [simulate(config(scheme, step)).figures()["model_sha256"] for scheme in BY_PARTIES]
    assert len(set(found)) == 1
    assert found[0] != simulate(config("masked", "sgd")).figures()["model_sha256"]


class RecorderOfModels(RecorderOfSums):
    """Keeps, beside the sums, what each party held after its last round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held: dict[PartyId, bytes] = {}

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if isinstance(event, RoundCommitted) and party != SERVER:
            self.held[party] = event.model_hash
        super().noted(now, party, event)


@pytest.mark.parametrize(("scheme", "back_at"), [("masked", 2.5), ("mpc", 3.5), ("ampc", 3.5)])
def test_one_that_was_away_is_given_what_the_step_remembers_and_steps_like_the_others(
    scheme: str, back_at: float
) -> None:
    """It misses rounds with a step in them, comes back, and votes for the same model as those who never left."""
    waits = {"opening_s": 1.0, "phase_s": 1.0, "training_s": 1.0}
    federation = Federation.build(config(scheme, "momentum:lr=0.5", rounds=12, **waits))
    away = PartyId("p4")
    recorder = RecorderOfModels(federation)
    Simulation(federation, Faults(crashes=(Crash(away, 0.3, back_at),)), observer=recorder).run()
    there = [away in event.members for _, event in sorted(recorder.sums.items())]
    assert len(there) == 12 and not all(there) and there[-1]
    assert sorted(recorder.held) == list(federation.roster.participants)
    assert len(set(recorder.held.values())) == 1


def test_a_rate_of_one_on_a_delta_is_the_step_without_a_kind() -> None:
    found = [simulate(config("masked", step)).figures()["model_sha256"] for step in ("sgd", "sgd:lr=1")]
    assert found[0] == found[1]


def test_a_server_that_crashes_goes_on_with_the_very_same_steps() -> None:
    def run(faults: Faults) -> Recorder:
        waits = {"opening_s": 1.0, "phase_s": 1.0, "training_s": 1.0}
        federation = Federation.build(config("masked", "yogi:lr=0.01", **waits))
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
    assert sha256_of(undisturbed.model) == sha256_of(disturbed.model)


@pytest.mark.parametrize("step", ["momentum", "adam", "adagrad", "yogi"])
def test_a_run_from_checkpoints_is_the_run_without_interruption(step: str, tmp_path: Path) -> None:
    options = TrainingOptions(payload="gradient", server_optimizer=step)
    means = np.random.default_rng(3).standard_normal((5, 21))
    straight, model = ServerStep(options, PartyStep(make_step(options))), np.zeros(21, np.float32)
    state = PersistentState(0, model)
    for number, mean in enumerate(means):
        model = straight.apply(model, mean, number)
        folder = StateFolder(tmp_path, SERVER, bytes(32))
        folder.acquire()
        assert state.model is not None
        resumed = ServerStep(options, PartyStep(make_step(options)), state.memory)
        state.model = resumed.apply(state.model, mean, number)
        state.rounds_done = number + 1
        folder.save(state)
        folder.release()
        state = StateFolder(tmp_path, SERVER, bytes(32)).load().state
        assert state.model is not None
        assert state.model.tobytes() == model.tobytes()
        assert state.memory[number + 1] == straight.memory[number + 1]


def test_running_statistics_move_as_in_a_plain_step() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    before = to_vector(module)
    border = next(entry.start for entry in layout(module) if entry.kind == "buffer")
    options = TrainingOptions(payload="gradient", server_optimizer="adam")
    mean = np.linspace(-1, 1, before.size)
    after, _ = PartyStep(make_step(options, border)).step(before, mean, 0, b"")
    plain = apply_update(before, mean, "gradient", options.learning_rate)
    assert np.array_equal(after[border:], plain[border:])
    assert not np.allclose(after[:border], plain[:border])


class TaskOfOne:
    """As much of a task as the maker of a step asks for."""

    def build_model(self) -> torch.nn.Module:
        return build_model("mlp3:8", (5,), 2, seed=3)


@pytest.mark.parametrize(
    ("step", "by_parties", "ours"),
    [
        ("adam", True, True),
        ("adam", False, False),
        ("yogi", False, True),
        ("momentum", False, True),
        ("adam:tau=0.01", False, True),
        ("adamw", False, False),
    ],
)
def test_a_server_alone_steps_with_torch_wherever_torch_has_the_step(
    step: str, by_parties: bool, ours: bool
) -> None:
    options = TrainingOptions(payload="gradient", server_optimizer=step)
    task: Any = TaskOfOne()
    assert isinstance(make_step_optimizer(task, options, by_parties=by_parties), PartyStep) == ours


def test_training_with_yogi_under_masks_ends_where_plain_ends() -> None:
    trained = config(
        "masked", "yogi:tau=0.01", task="digits", payload="gradient", learning_rate=0.01, device="cpu"
    )
    figures = simulate(trained, compare="plain").figures()
    assert not figures["aborted"]
    assert figures["baseline_distance"] < 1e-4
