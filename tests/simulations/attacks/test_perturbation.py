"""What the published statements about perturbation promise, and what attacks make of them.

One client attacks, with its own samples, a model that four clients train: a synthetic task of ten classes, two
hidden layers. Limits are set well inside what the attacks reach, so that they fail if an attack stops working.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from veilsum.protocol.perturbation.algebra.exchange import answer, conclude
from veilsum.protocol.perturbation.algebra.key import PerturbationKey, new_key
from veilsum.protocol.perturbation.algebra.packing import load_parameters
from veilsum.protocol.perturbation.algebra.terms import (
    client_terms,
    cross_entropy_terms,
    exchange_request,
    run_forward,
)
from veilsum.protocol.perturbation.draws import UniformStream
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.attacks.perturbation import (
    balancedness,
    cross_entropy,
    data_free,
    least_squares,
    projection,
    shared_mask,
    signs,
)

CLASSES, INPUTS, WIDTH, OWN, LATE = 10, 50, 128, 200, 200


@dataclass
class Task:
    plan: PerturbationPlan
    own: tuple[torch.Tensor, torch.Tensor]
    unseen: torch.Tensor
    states: dict[int, np.ndarray]

    def model(self, flat: np.ndarray) -> nn.Module:
        module = network()
        load_parameters(self.plan, module, flat)
        return module

    def view(self, round_number: int, settings: PerturbationSettings, seed: int = 1) -> View:
        key = new_key(self.plan, settings, SeededEntropy(seed))
        return View(self, key, self.states[round_number])


class View:
    """What one client holds in one round, and, for judging the attack, the truth."""

    def __init__(self, task: Task, key: PerturbationKey, true: np.ndarray) -> None:
        self.public = key.public
        self.key = key
        self.perturbed = task.model(key.perturb(true))
        self.true = task.model(true)
        self.own_outputs, self.own_alpha = self.outputs(task.own[0])
        self.labels = np.eye(CLASSES)[task.own[1].numpy()]
        self.unseen_outputs, self.unseen_alpha = self.outputs(task.unseen)
        self.truth = self.true(task.unseen).detach().numpy()

    def outputs(self, inputs: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            features = self.perturbed[:-1](inputs)
            return self.perturbed[-1](features).numpy(), features.sum(1).numpy() * self.public.feature_weight

    def agreement(self, guess: np.ndarray) -> float:
        """How often the attacker's prediction on unseen samples is the true model's."""
        return float(np.mean(guess == self.truth.argmax(axis=1)))

    def after(self, offset: np.ndarray) -> np.ndarray:
        return least_squares.remove_offset(self.unseen_outputs, self.unseen_alpha, offset)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        layers = [
            nn.Linear(INPUTS, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, CLASSES),
        ]
        return nn.Sequential(*layers).double()


@pytest.fixture(scope="module")
def task() -> Task:
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, INPUTS, generator=generator).double()
    labels = torch.randint(CLASSES, (5 * OWN,), generator=generator)
    inputs = 0.6 * centres[labels] + torch.randn(5 * OWN, INPUTS, generator=generator).double()
    training, targets = inputs[: 4 * OWN], torch.nn.functional.one_hot(labels[: 4 * OWN], CLASSES).double()
    model = network()
    plan = trace(model, torch.zeros(1, INPUTS))
    states = {}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.15)
    for round_number in range(LATE + 1):
        if round_number in (0, 20, LATE):
            states[round_number] = plan.flatten(model.state_dict())
        optimiser.zero_grad()
        (0.5 * (model(training) - targets).square().sum() / len(targets)).backward()
        optimiser.step()
    return Task(plan, (inputs[:OWN], labels[:OWN]), inputs[4 * OWN :], states)


def test_raw_perturbed_outputs_do_hide_predictions_from_a_client_that_does_nothing(task: Task) -> None:
    """The scheme does what it shows: without an attack, perturbed predictions are near chance."""
    view = task.view(LATE, PerturbationSettings(groups=CLASSES, gamma=100.0))
    assert view.agreement(view.unseen_outputs.argmax(axis=1)) < 0.4


@pytest.mark.parametrize("groups", [1, 2, 5, 10])
def test_projection_shows_all_dimensions_but_one_per_group_exactly(task: Task, groups: int) -> None:
    view = task.view(20, PerturbationSettings(groups=groups, gamma=100.0))
    matrix = projection.projector(view.public)
    assert np.linalg.matrix_rank(matrix) == CLASSES - groups
    found = projection.project_outputs(view.unseen_outputs, view.public)
    assert np.abs(found - view.truth @ matrix).max() < 1e-9


def test_projection_gives_predictions_with_few_groups_and_nothing_with_one_per_output(task: Task) -> None:
    """With m = 1 the claim is "less than one" and the attack is nearly always right; only m = n stops it."""
    found = {}
    for groups in (1, 2, 10):
        view = task.view(LATE, PerturbationSettings(groups=groups, gamma=100.0))
        found[groups] = view.agreement(projection.guess_labels(view.unseen_outputs, view.public))
    assert found[1] > 0.97
    assert found[2] > 0.9
    assert found[10] < 0.4


@pytest.mark.parametrize("groups", [1, 10])
def test_least_squares_predicts_like_the_true_model_once_trained(task: Task, groups: int) -> None:
    """The published bound for ten groups is one in ten."""
    found = {}
    for round_number in (0, 20, LATE):
        view = task.view(round_number, PerturbationSettings(groups=groups))
        offset = least_squares.estimate_offset(view.own_outputs, view.own_alpha, view.labels)
        found[round_number] = view.agreement(view.after(offset).argmax(axis=1))
    assert found[LATE] > 0.97
    assert found[LATE] >= found[20] >= found[0] - 0.05


def test_the_error_of_least_squares_is_a_rescaled_gradient_and_ignores_gamma(task: Task) -> None:
    """r_hat - r = sum(alpha g) / sum(alpha^2), g the true error; the same for gamma from 0.3 to 300."""
    errors = []
    for gamma in (0.3, 3.0, 300.0):
        view = task.view(20, PerturbationSettings(groups=3, gamma=gamma))
        offset = least_squares.estimate_offset(view.own_outputs, view.own_alpha, view.labels)
        true_error = view.true(task.own[0]).detach().numpy() - view.labels
        expected = view.own_alpha @ true_error / (view.own_alpha @ view.own_alpha)
        assert np.allclose(offset - view.key.offset, expected, rtol=1e-6, atol=1e-9)
        errors.append(offset - view.key.offset)
    assert np.allclose(errors[0], errors[1], atol=1e-9)
    assert np.allclose(errors[0], errors[2], atol=1e-7)


def test_the_head_alone_shows_the_offset(task: Task) -> None:
    """No data at all: row medians of the perturbed head, for one group and for one per output."""
    for groups, alpha, least in ((1, "mean", 0.95), (1, "sum", 0.95), (10, "sum", 0.85)):
        view = task.view(LATE, PerturbationSettings(groups=groups, alpha=alpha))
        offset = data_free.estimate_offset(view.perturbed[-1].weight.detach().numpy(), view.public)
        assert view.agreement(view.after(offset).argmax(axis=1)) > least


def imbalance_of_uniform_layers(layers: list[balancedness.Layer]) -> list[float]:
    """What every hidden unit of a layer starts with, for weights and biases uniform in +-1/sqrt(fan in)."""
    constants = []
    for here, after in pairwise(layers):
        incoming = (here.weight.shape[1] + 1) / (3 * here.weight.shape[1])
        outgoing = after.weight.shape[0] / (3 * after.weight.shape[1])
        constants.append(incoming - outgoing)
    return constants


def test_balancedness_gives_the_factors_to_a_few_per_cent(task: Task) -> None:
    """At the start and after 200 rounds, from one round's weights; the head's offset is removed first."""
    for round_number in (0, LATE):
        view = task.view(round_number, PerturbationSettings(gamma=1.0))
        offset = least_squares.estimate_offset(view.own_outputs, view.own_alpha, view.labels)
        layers = [
            balancedness.Layer(layer.weight.detach().numpy(), layer.bias.detach().numpy())
            for layer in (view.perturbed[0], view.perturbed[2], view.perturbed[4])
        ]
        freed = layers[2].weight - offset[:, None] * view.public.feature_weight
        layers[2] = replace(layers[2], weight=freed)
        found = balancedness.estimate_factors(layers, imbalance_of_uniform_layers(layers))
        for factors, perturbed, true in ((found[0], 0, 0), (found[1], 2, 2)):
            ratio = view.perturbed[perturbed].bias.detach() / view.true[true].bias.detach()
            error = np.abs(np.log(factors / ratio.numpy()))
            assert np.median(error) < 0.05


def test_signs_tell_two_models_apart_with_certainty(task: Task) -> None:
    """Semantic security asks for an advantage near zero; the advantage is one, in every trial."""
    hidden = task.plan.size - CLASSES * (WIDTH + 1)
    other = task.states[0] + 0.05 * np.sin(np.arange(task.plan.size))
    candidates = [task.states[0][:hidden], other[:hidden]]
    for trial in range(20):
        chosen = trial % 2
        key = new_key(task.plan, PerturbationSettings(), SeededEntropy(trial))
        perturbed = key.perturb((task.states[0], other)[chosen])
        assert signs.distinguish(candidates, perturbed[:hidden]) == chosen


@pytest.mark.parametrize("exchange", ["log", "printed"])
@pytest.mark.parametrize("groups", [1, 2, 5, 10])
def test_a_client_gets_the_true_softmax_and_gamma_from_one_exchange(
    task: Task, exchange: str, groups: int
) -> None:
    view = task.view(20, PerturbationSettings(loss="ce", exchange=exchange, groups=groups))
    inputs = task.own[0][:32]
    outputs, alpha = view.outputs(inputs)
    forward = run_forward(task.plan, view.perturbed, view.public, inputs)
    asked = exchange_request(forward, SeededEntropy(2))
    reply = conclude(view.public, asked, answer(view.key, asked.request, SeededEntropy(3)))
    found = cross_entropy.recover_softmax(reply.surrogate, reply.direction, view.public)
    truth = torch.softmax(view.true(inputs).detach(), dim=1).numpy()
    assert np.abs(found - truth).max() < 1e-8
    gammas = cross_entropy.recover_gammas(outputs, alpha, found, view.public)
    if groups < CLASSES:
        assert np.allclose(gammas, view.key.gammas, rtol=1e-6)


def test_the_server_gets_each_samples_softmax_from_the_printed_exchange(task: Task) -> None:
    """The client's blinding cancels in differences; the server was to learn nothing about single samples."""
    view = task.view(20, PerturbationSettings(loss="ce", exchange="printed", groups=2))
    inputs = task.own[0][:32]
    forward = run_forward(task.plan, view.perturbed, view.public, inputs)
    asked = exchange_request(forward, SeededEntropy(2)).request
    found = cross_entropy.softmax_from_ratios(asked.values, asked.alpha, view.key.offset)
    truth = torch.softmax(view.true(inputs).detach(), dim=1).numpy()
    assert np.median(np.abs(found - truth)) < 1e-10


def test_one_mask_for_two_terms_shows_the_clients_own_gradient(task: Task) -> None:
    """The head's beta is zero, so a mask it shares with the gradient is read off it; here it is not even sent."""
    view = task.view(20, PerturbationSettings())
    terms = client_terms(task.plan, view.perturbed, view.public, *task.own)
    head = terms.vectors["gradient"][task.plan.head_slices()[0]]
    mask = UniformStream(SeededEntropy(9)).uniform(-1e6, 1e6, head.size)
    assert np.allclose(shared_mask.unmask(head + mask, np.zeros_like(head) + mask), head, atol=1e-8)
    assert terms.vectors["beta"].size == task.plan.body_size + 1


def test_infinitely_many_models_explain_what_a_client_sees(task: Task) -> None:
    """Theorem 4, constructively: any other factors and gammas give a model with the same perturbed weights.

    It holds even with the public directions given. It is the rescaling symmetry of the network, not secrecy: all
    those models compute the same function up to the offset.
    """
    view = task.view(20, PerturbationSettings(groups=2))
    seen = view.key.perturb(task.states[20])
    models = []
    for seed in (11, 12, 13):
        other = replace(
            new_key(task.plan, PerturbationSettings(groups=2), SeededEntropy(seed)), public=view.public
        )
        offset = other.perturb(np.zeros(task.plan.size))
        model = (seen - offset) / other.scale
        assert np.allclose(other.perturb(model), seen, rtol=1e-12, atol=1e-12)
        models.append(model)
    assert min(np.linalg.norm(a - b) for a in models for b in models if a is not b) > 1.0


def test_the_perturbed_gradient_is_the_stated_combination(task: Task) -> None:
    """Lemma 3 (Theorem 2): perturbed gradient = true / R + sum gamma sigma - v beta, for every hidden weight."""
    view = task.view(20, PerturbationSettings(groups=3))
    terms = client_terms(task.plan, view.perturbed, view.public, *task.own).vectors
    loss = 0.5 * (view.true(task.own[0]) - torch.as_tensor(view.labels)).square().sum() / OWN
    gradients = torch.autograd.grad(loss, list(view.true.parameters()))
    true = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()
    body = slice(0, task.plan.body_size)
    combined = true[body] / view.key.scale[body]
    combined += sum(gamma * terms[f"sigma.{s}"][:-1] for s, gamma in enumerate(view.key.gammas))
    combined -= view.key.offset @ view.key.offset * terms["beta"][:-1]
    assert np.allclose(terms["gradient"][body], combined, rtol=1e-9, atol=1e-12)


def test_the_cross_entropy_gradient_is_the_stated_combination(task: Task) -> None:
    """Lemma 5: perturbed gradient = true / R + gamma sigma - gamma xi beta + xi psi, for every hidden weight."""
    view = task.view(20, PerturbationSettings(loss="ce", exchange="printed", groups=2))
    inputs, labels = task.own
    forward = run_forward(task.plan, view.perturbed, view.public, inputs)
    asked = exchange_request(forward, SeededEntropy(2))
    reply = conclude(view.public, asked, answer(view.key, asked.request, SeededEntropy(3)))
    terms = cross_entropy_terms(forward, reply, labels).vectors
    loss = nn.functional.cross_entropy(view.true(inputs), labels)
    gradients = torch.autograd.grad(loss, list(view.true.parameters()))
    true = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()
    body = slice(0, task.plan.body_size)
    combined = true[body] / view.key.scale[body]
    for s, (gamma, blinder) in enumerate(zip(view.key.gammas, view.key.blinders, strict=True)):
        combined += (
            gamma * terms[f"sigma.{s}"][:-1]
            - gamma * blinder * terms[f"beta.{s}"]
            + blinder * terms[f"psi.{s}"]
        )
    assert np.allclose(terms["gradient"][body], combined, rtol=1e-9, atol=1e-12)


def test_every_hidden_value_is_its_factor_times_the_true_one(task: Task) -> None:
    """Lemma 1: hidden values are rescaled, outputs are shifted by alpha times the offset."""
    view = task.view(20, PerturbationSettings(groups=4))
    for depth in (2, 4):
        with torch.no_grad():
            ratio = view.perturbed[depth - 2].bias / view.true[depth - 2].bias
            hidden = view.perturbed[:depth](task.unseen), ratio * view.true[:depth](task.unseen)
        assert torch.allclose(*hidden, rtol=1e-10, atol=1e-12)
    assert np.allclose(view.after(view.key.offset), view.truth, rtol=1e-9, atol=1e-9)
