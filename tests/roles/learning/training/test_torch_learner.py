"""Training is a pure function of model and round, leaves no trace in the process, and says what went wrong."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.learning.contract import FloatVector, Payload, TrainingFailed, apply_update, headline
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.splits import Split
from veilsum.roles.learning.task import Loss, Samples, Task
from veilsum.roles.learning.training.compare import mean_metrics, train_alone, train_central, train_standalone
from veilsum.roles.learning.training.loop import Feed
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner
from veilsum.roles.learning.training.vectorize import layout

FAST = TrainingOptions(local_epochs=1, batch_size=32)
PAYLOADS: list[Payload] = ["model", "delta", "gradient"]


def learner(task: Task, party: int = 0, parties: int = 5, options: TrainingOptions = FAST) -> TorchLearner:
    return TorchLearner(LearnerParts(task, party, parties, Split("iid"), options, seed=7))


def tiny(count: int = 24) -> SupervisedTask:
    """A task of a few random samples."""
    rng = np.random.default_rng(1)
    data = Samples(rng.random((count, 1, 8, 8), dtype=np.float32), np.arange(count) % 3)
    return SupervisedTask(data, data, lambda: build_model("mlp2:8", (1, 8, 8), 3))


def normed(dropout: float = 0.5) -> nn.Module:
    layers = [
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(144, 3),
    ]
    return nn.Sequential(*layers)


def normed_task() -> SupervisedTask:
    return replace(tiny(), network=normed)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_train_is_a_pure_function_of_model_and_round(payload: Payload) -> None:
    """Batch norm and dropout included: neither earlier calls nor the global generator nor threads matter."""
    options = TrainingOptions(payload=payload)
    party = learner(normed_task(), options=options)
    model = party.initial_model()
    expected = party.train(model, 3)
    party.train(model, 0)
    party.train(expected.model if expected.model is not None else model, 4)
    party.evaluate(model)
    torch.rand(11)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        again = party.train(model, 3)
    finally:
        torch.set_num_threads(threads)
    afresh = learner(normed_task(), options=options).train(model, 3)
    for update in (again, afresh):
        assert update.payload.tobytes() == expected.payload.tobytes()
        assert update.loss == expected.loss


def test_training_leaves_the_process_as_it_was(digits: Task) -> None:
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    party = learner(digits)
    party.evaluate(party.train(party.initial_model(), 0).payload)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_parties_that_train_in_threads_of_one_process_do_not_disturb_each_other() -> None:
    parties = [learner(normed_task(), party=index) for index in range(4)]
    model = parties[0].initial_model()
    alone = [party.train(model, 1).payload.tobytes() for party in parties]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda party: party.train(model, 1).payload.tobytes(), parties))
    assert together == alone


def test_another_process_computes_the_same_bytes(digits: Task) -> None:
    code = (
        "from hashlib import sha256\n"
        "from veilsum.roles.config.federation_config import FederationConfig\n"
        "from veilsum.roles.learning.factory import make_learner\n"
        "from veilsum.roles.learning.datasets.registry import load_task\n"
        "config = FederationConfig(seed=7, local_epochs=1, batch_size=32, device='cpu')\n"
        "learner = make_learner(config, load_task('digits', config.task_options()), 'p3')\n"
        "payload = learner.train(learner.initial_model(), 1).payload\n"
        "print(sha256(payload.tobytes()).hexdigest(), end='')\n"
    )
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    here = learner(digits, party=2)
    assert other == sha256(here.train(here.initial_model(), 1).payload.tobytes()).hexdigest()


def test_all_parties_start_from_the_same_bytes_and_hold_different_samples(digits: Task) -> None:
    parties = [learner(digits, party=index) for index in range(5)]
    assert len({party.initial_model().tobytes() for party in parties}) == 1
    assert sum(party.samples for party in parties) == len(digits.train)
    model = parties[0].initial_model()
    assert len({party.train(model, 0).payload.tobytes() for party in parties}) == 5


def test_another_seed_gives_another_model(digits: Task) -> None:
    other = TorchLearner(LearnerParts(digits, 0, 5, Split("iid"), FAST, seed=8))
    assert other.initial_model().tobytes() != learner(digits).initial_model().tobytes()


def test_batches_are_drawn_anew_in_each_round() -> None:
    party = learner(tiny(), parties=1, options=TrainingOptions(batch_size=4))
    model = party.initial_model()
    assert party.train(model, 0).payload.tobytes() != party.train(model, 1).payload.tobytes()


def test_training_drops_out_and_evaluation_does_not() -> None:
    with_dropout, without = (learner(replace(tiny(), network=partial(normed, rate))) for rate in (0.5, 0.0))
    model = with_dropout.initial_model()
    assert with_dropout.train(model, 0).payload.tobytes() != without.train(model, 0).payload.tobytes()
    assert with_dropout.evaluate(model) == without.evaluate(model)


def test_the_callers_model_is_not_changed(digits: Task) -> None:
    party = learner(digits)
    model = party.initial_model()
    before = model.copy()
    party.train(model, 0).payload[:] = 0
    party.evaluate(model)
    party.initial_model()[:] = 0
    assert model.tobytes() == before.tobytes() == party.initial_model().tobytes()


def test_model_and_delta_payloads_lead_to_the_same_model(digits: Task) -> None:
    whole = learner(digits)
    change = learner(digits, options=replace(FAST, payload="delta"))
    model = whole.initial_model()
    update = change.train(model, 0)
    assert update.model is not None
    assert update.model.tobytes() == whole.train(model, 0).payload.tobytes()
    np.testing.assert_allclose(apply_update(model, update.payload, "delta", 0.1), update.model, atol=1e-7)


def test_a_gradient_payload_is_the_full_batch_gradient_and_one_step_of_it() -> None:
    """Against one SGD step on the whole batch, buffers of the batch norm included."""
    task = replace(tiny(), network=lambda: normed(dropout=0.0))
    by_gradient = learner(task, parties=2, options=TrainingOptions(payload="gradient", learning_rate=0.2))
    by_step = learner(
        task, parties=2, options=TrainingOptions(local_epochs=1, batch_size=None, learning_rate=0.2)
    )
    model = by_step.initial_model()
    update = by_gradient.train(model, 0)
    stepped = apply_update(model, update.payload, "gradient", 0.2)
    expected = by_step.train(model, 0).payload
    assert any(entry.kind == "buffer" for entry in layout(task.build_model()))
    np.testing.assert_allclose(stepped, expected, atol=1e-6)
    assert not np.array_equal(model, expected)


def test_a_mini_batch_gradient_is_drawn_anew_in_each_round() -> None:
    options = TrainingOptions(payload="gradient", gradient_batch="mini", batch_size=4)
    party = learner(tiny(), parties=2, options=options)
    model = party.initial_model()
    assert party.train(model, 0).payload.tobytes() != party.train(model, 1).payload.tobytes()
    assert party.train(model, 0).samples == 12


def test_a_gradient_over_many_chunks_is_the_gradient_over_all_samples() -> None:
    task = tiny(count=3000)
    options = TrainingOptions(payload="gradient")
    party = learner(task, parties=1, options=options)
    payload = party.train(party.initial_model(), 0).payload
    halves = [
        TorchLearner(LearnerParts(task, index, 2, Split("by-order"), options, seed=7))
        .train(party.initial_model(), 0)
        .payload
        for index in range(2)
    ]
    np.testing.assert_allclose(payload, np.mean(halves, axis=0), atol=1e-6)


def test_no_chunk_is_a_single_sample_that_a_batch_could_not_be_normalised_over() -> None:
    samples = tiny(count=1025).train
    sizes = [len(inputs) for inputs, _ in Feed(samples, torch.device("cpu")).chunks(np.arange(len(samples)))]
    assert sum(sizes) == 1025
    assert max(sizes) - min(sizes) <= 1


def test_frozen_and_unused_parameters_do_not_move() -> None:
    class Partial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.unused, self.head = nn.Linear(64, 4), nn.Linear(2, 2), nn.Linear(4, 3)
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.head(self.frozen(x.flatten(1)))
            return outputs

    entries = {entry.name: slice(entry.start, entry.stop) for entry in layout(Partial())}
    for payload in PAYLOADS:
        options = TrainingOptions(payload=payload)
        party = learner(replace(tiny(), network=Partial), options=options)
        model = party.initial_model()
        after = apply_update(model, party.train(model, 0).payload, payload, 0.1)
        for name, place in entries.items():
            assert np.array_equal(model[place], after[place]) == (not name.startswith("head"))


def average(
    parties: list[TorchLearner], model: FloatVector, round_: int, options: TrainingOptions
) -> FloatVector:
    updates = [party.train(model, round_) for party in parties]
    total = sum(update.samples for update in updates)
    mean = sum(
        (update.payload.astype(np.float64) * update.samples for update in updates), start=np.zeros(model.size)
    )
    return apply_update(model, mean / total, options.payload, options.learning_rate_at(round_))


def test_five_parties_learn_the_digits_in_three_rounds_with_the_default_options(digits: Task) -> None:
    options = TrainingOptions()
    parties = [learner(digits, party=index, options=options) for index in range(5)]
    model = parties[0].initial_model()
    for round_ in range(3):
        model = average(parties, model, round_, options)
    assert parties[0].evaluate(model)["accuracy"] > 0.9


def test_all_parties_measure_the_same_metrics_headline_first(digits: Task) -> None:
    parties = [learner(digits, party=index) for index in range(2)]
    model = parties[0].initial_model()
    first, second = (party.evaluate(model) for party in parties)
    assert first == second
    assert list(first) == ["accuracy", "balanced_accuracy", "loss"]
    assert headline(first) == ("accuracy", first["accuracy"])


def test_a_loss_that_is_not_finite_ends_the_round_naming_party_and_round(digits: Task) -> None:
    hot = TrainingOptions(learning_rate=1e30)
    party = learner(digits, party=3, options=hot)
    with refusal(TrainingFailed, 4, 5, "round", 3, "learning"):
        party.train(party.initial_model(), 2)


def test_a_step_that_overflows_after_a_finite_loss_is_refused_too() -> None:
    options = TrainingOptions(payload="model", learning_rate=3e38, local_epochs=1, batch_size=None)
    task = replace(tiny(), objective="mse")
    party = learner(task, party=1, parties=2, options=options)
    with refusal(TrainingFailed, "party", 2, "round", 1, "finite"):
        party.train(party.initial_model() * np.float32(10), 0)


def test_models_and_data_that_do_not_fit_are_refused_when_the_learner_is_made() -> None:
    with refusal(ParameterError, "party", 1, 5, "model", "shape", "(1,"):
        learner(replace(tiny(), network=lambda: nn.Linear(7, 3)))
    with refusal(LocalProtocolError, "shape", "(batch,"):
        learner(replace(tiny(), network=lambda: nn.Linear(8, 3)))
    with refusal(LocalProtocolError, "party", 5):
        learner(tiny(), party=5)


@pytest.mark.parametrize("objective", ["ce", "mse"])
@pytest.mark.parametrize(("last", "where"), [(3, "training"), (-1, "training"), (3, "test")])
def test_labels_without_an_output_are_refused_with_what_there_is_and_the_remedy(
    objective: Loss, last: int, where: str
) -> None:
    """Also where it is the last sample's label alone: it would have come up in some round."""
    held = tiny().train
    labels = held.targets % 3
    labels[-1] = last
    wrong = Samples(held.inputs, labels)
    train, test = (wrong, held) if where == "training" else (held, wrong)
    with refusal(ParameterError, "party", 1, 5, where, last, "outputs", "classes"):
        learner(replace(tiny(), train=train, test=test, objective=objective))


@dataclass(frozen=True)
class PerSampleLoss(SupervisedTask):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum(dim=1)


def test_a_loss_that_is_not_one_number_is_refused() -> None:
    task = tiny()
    with refusal(LocalProtocolError, "shape", "(2,)"):
        learner(PerSampleLoss(task.train, task.test, task.network))


def test_a_model_vector_of_another_length_is_refused(digits: Task) -> None:
    party = learner(digits)
    with refusal(LocalProtocolError, 3, 4810):
        party.train(np.zeros(3, np.float32), 0)
    with refusal(LocalProtocolError, 3, 4810):
        party.evaluate(np.zeros(3, np.float32))


def test_pixels_from_0_to_255_enter_the_model_from_0_to_1() -> None:
    images = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8).repeat(4, axis=0) * 4
    labels = np.zeros(4, np.int64)
    as_bytes, as_floats = Samples(images, labels), Samples(images.astype(np.float32) / 255, labels)
    results = []
    for samples in (as_bytes, as_floats):
        party = learner(replace(tiny(), train=samples, test=samples), parties=1)
        results.append(party.train(party.initial_model(), 0).payload)
    np.testing.assert_allclose(results[0], results[1], atol=1e-6)


def test_the_pooled_run_beats_a_party_alone(digits: Task) -> None:
    options = TrainingOptions()
    central = train_central(digits, 2, options, seed=7)
    alone = train_standalone([digits] * 5, "iid", 2, options, seed=7)
    assert len(alone) == 5
    assert central.metrics["accuracy"] > 0.9
    assert central.metrics["accuracy"] > mean_metrics(alone)["accuracy"]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_standalone_is_the_federation_of_one(payload: Payload) -> None:
    options = TrainingOptions(payload=payload)
    party = learner(tiny(), party=1, parties=3, options=options)
    model = party.initial_model()
    for round_ in range(2):
        model = average([party], model, round_, options)
    standalone = train_standalone([tiny()] * 3, "iid", 2, options, seed=7)[1]
    np.testing.assert_allclose(standalone.model, model, atol=1e-7)
    assert train_alone(party, 2, options).model.tobytes() == standalone.model.tobytes()


def test_vectors_have_nothing_to_compare_with() -> None:
    with refusal(TaskError, "vectors", "central", "standalone"):
        train_central(VectorsTask(3), 1, FAST, seed=0)
    with refusal(TaskError, "vectors", "central", "standalone"):
        train_standalone([VectorsTask(3)] * 2, "iid", 1, FAST, seed=0)
