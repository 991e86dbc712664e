"""Rows of server-side perturbation: how often a client's predictions are those of the true model.

The federation starts from a trained model that clients do not know, since that is what the scheme is to hide. The null
row is a client that guesses with the first, untrained model, which everybody knows; the oracle is given the server's
key. Every attack is tried on the kinds of perturbation that matter to it, and beside it stands what a client reads that
does nothing, as the papers assume.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.datasets.supervised import balanced
from veilsum.roles.learning.task import Array, Task
from veilsum.roles.learning.training.compare import train_central
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.metrics import success_rate
from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys
from veilsum.simulations.attacks.perturbation.kinds import PredictionRecovery
from veilsum.simulations.attacks.perturbation.predictions import (
    PerturbedModel,
    projected_predictions,
    raw_predictions,
)
from veilsum.simulations.audit.request import BASELINE, Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.row import Row, RowKind
from veilsum.simulations.audit.stage import Played, attackable_task, play
from veilsum.simulations.audit.steps import Steps

OWN_SAMPLES = 80
_ROUNDS, _EPOCHS = 3, 10
Predict = Callable[[View, Array], NDArray[np.int64]]


@dataclass(frozen=True)
class TriedPerturbation:
    """One kind of perturbation to attack."""

    loss: str = "ce"
    groups: int = 10
    mode: str = "scale+offset"
    exchange: str = "log"
    gamma: float = 100.0

    def __str__(self) -> str:
        if self.mode == "scale":
            return f"{self.loss}, scale"
        return f"{self.loss}, {self.mode}, m = {self.groups}"


@dataclass(frozen=True)
class Experiment:
    """The perturbations that an attack on predictions is tried on, and its rows' words."""

    tried: tuple[TriedPerturbation, ...]
    words: str
    projects: bool = False
    """Whether the projection, which needs no labels, stands beside it."""


def fit_rows(attack: PredictionRecovery, request: Request, steps: Steps) -> Iterator[Row]:
    tried = (TriedPerturbation(), TriedPerturbation(groups=1), TriedPerturbation(mode="scale"))
    return _rows(attack, request, steps, Experiment(tried, "fit on own labels", projects=True))


def line_rows(attack: PredictionRecovery, request: Request, steps: Steps) -> Iterator[Row]:
    return _rows(
        attack,
        request,
        steps,
        Experiment(
            (TriedPerturbation("mse", 1), TriedPerturbation("mse", 10)), "least squares on own labels"
        ),
    )


def data_free_rows(attack: PredictionRecovery, request: Request, steps: Steps) -> Iterator[Row]:
    return _rows(
        attack,
        request,
        steps,
        Experiment((TriedPerturbation("mse", 1), TriedPerturbation("mse", 10)), "medians of the head"),
    )


def exchange_rows(attack: PredictionRecovery, request: Request, steps: Steps) -> Iterator[Row]:
    return _rows(
        attack,
        request,
        steps,
        Experiment((TriedPerturbation("ce", 1), TriedPerturbation("ce", 10)), "one exchange"),
    )


def announce(request: Request, steps: Steps) -> None:
    """Refuse a scheme that does not perturb, and say what begins."""
    require_perturbation(request)
    steps.expect(2)
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")


def _rows(
    attack: PredictionRecovery, request: Request, steps: Steps, experiment: Experiment
) -> Iterator[Row]:
    """Every perturbation by a client that does nothing and by the attack; then the rows that give them a scale."""
    require_perturbation(request)
    kinds = experiment.tried
    steps.expect(2 * len(kinds) + 2)
    task = attackable_task(request.config())
    for tried in kinds:
        steps(f"{request.scheme}/{request.adversary}/{request.attack}: training a model to perturb")
        model = trained_model(request, tried.loss)
        played = perturbation(request, tried, model)
        expected = _classes(played.view("server"), model, task)
        view = played.view(request.adversary)
        pooled = len(view.members) > 1
        steps(f"{request.scheme}/{request.adversary}/{request.attack}, {tried}")
        for words, level, predict in _attempts(attack, experiment, tried):
            started = time.process_time()
            guess = predict(view, task.test.inputs)
            cpu_s = time.process_time() - started
            row = _row(request, "attack", f"{words}; {tried}", guess, expected, task, cpu_s)
            yield replace(row, knowledge=row.knowledge if pooled else level, threat=repr(view))
        if request.references and tried is kinds[0]:
            yield from _reference_rows(request, tried, played, model, task)


def _attempts(
    attack: PredictionRecovery, experiment: Experiment, tried: TriedPerturbation
) -> Iterator[tuple[str, str, Predict]]:
    yield "does nothing", "L0", raw_predictions
    if tried.mode == "scale":
        return
    if experiment.projects:
        yield "projection", "L1", projected_predictions
    yield experiment.words, attack.knowledge, attack.predict


def _reference_rows(
    request: Request, tried: TriedPerturbation, played: Played, model: Model, task: Task
) -> Iterator[Row]:
    expected = _classes(played.view("server"), model, task)
    plain = FederationConfig.from_options({"scheme": BASELINE}, request.config())
    bare = play(plain, 1, model=model).view("client")
    received = next(message.model for _, message in bare.received(RoundOpened))
    guess = _classes(bare, received, task)
    words = "the model as received"
    yield _row(request.undefended, "undefended", words, guess, expected, task, 0.0)
    view = played.view("client")
    guess = _classes(view, view.initial_model, task)
    yield _row(request, "null", "untrained model", guess, expected, task, 0.0)
    offset = PerturbationKeys(played.view("server")).of_round(0).offset
    guess = PerturbedModel(view).classes_without(offset, task.test.inputs)
    yield _row(request, "oracle", f"with the server's key; {tried}", guess, expected, task, 0.0)


def require_perturbation(request: Request) -> None:
    if not request.config().perturbs:
        raise ParameterError(
            [f"{request.attack} is an attack on perturbed and bilateral, not on {request.scheme}"]
        )


def trained_model(request: Request, loss: str) -> Model:
    """A model worth hiding; made once per process for a task, an architecture and a seed."""
    return _train(request.task, request.data, request.seed, request.model or request.entry.model, loss)


@functools.lru_cache(maxsize=8)
def _train(task: str, data: str | None, seed: int, model: str, loss: str) -> Model:
    options = {
        "scheme": BASELINE,
        "task": task,
        "data": data,
        "seed": seed,
        "model": model,
        "loss": loss,
        "payload": "model",
        "local_epochs": _EPOCHS,
        "batch_size": 16,
        "device": "cpu",
    }
    config = FederationConfig.from_options(options)
    return train_central(attackable_task(config), _ROUNDS, config.training_options(), config.seed).model


def perturbation(
    request: Request,
    tried: TriedPerturbation,
    model: Model | None,
    images: int = OWN_SAMPLES,
    **settings: object,
) -> Played:
    """One round on the perturbed model, unless the settings say more."""
    options = {
        "loss": tried.loss,
        "noise": tried.mode,
        "groups": tried.groups if tried.mode != "scale" else None,
        "gamma": tried.gamma if tried.mode != "scale" else None,
        "ce_exchange": tried.exchange,
        **settings,
    }
    known = {name: value for name, value in options.items() if value is not None}
    return play(FederationConfig.from_options(known, request.config()), images, model=model)


def _classes(view: View, model: Model, task: Task) -> NDArray[np.int64]:
    found: NDArray[np.int64] = Exposed(view.facts, model).logits(task.test).argmax(dim=1).numpy()
    return found


def _row(
    request: Request,
    kind: RowKind,
    words: str,
    guess: NDArray[np.int64],
    expected: NDArray[np.int64],
    task: Task,
    cpu_s: float,
) -> Row:
    rate = success_rate(int((guess == expected).sum()), len(expected))
    return Row(
        **vars(heading_of(request, kind, f"predictions: {words}")),
        n=len(expected),
        cpu_s=cpu_s,
        success_rate=rate.value,
        ci_low=rate.low,
        ci_high=rate.high,
        extra={
            "agreement": rate.value,
            "balanced_accuracy": balanced(guess == task.test.targets, task.test.targets),
        },
    )
