"""Rows of server-side perturbation: how often a client's predictions are those of the true model.

The federation starts from a trained model, since that is what the scheme is to hide. The null row is a client that
guesses with the first, untrained model; the oracle is the true model itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.events import Model
from veilsum.protocol.session import RoundOpened
from veilsum.roles.config import FederationConfig
from veilsum.roles.learning.compare import train_central
from veilsum.simulations.attacks.membership import Exposed
from veilsum.simulations.attacks.perturbed import fitted_predictions, projected_predictions, raw_predictions
from veilsum.simulations.audit.gradient import heading_of
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows import Row, RowKind
from veilsum.simulations.audit.stage import attackable_task, play
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.metrics import success_rate

SCHEMES = ("perturbed", "bilateral")
GAMMA, OWN_SAMPLES = 100.0, 80


def perturbation_rows(request: Request, steps: Steps) -> Iterator[Row]:
    if request.scheme not in SCHEMES:
        raise ParameterError(
            [f"{request.attack} is an attack on {' and '.join(SCHEMES)}, not on {request.scheme}"]
        )
    task = attackable_task(request.config())
    base = FederationConfig.from_options({"gamma": GAMMA, "groups": 10}, request.config())
    steps("training a model to disguise")
    alone = FederationConfig.from_options(
        {"scheme": "plain", "payload": "model", "local_epochs": 10, "batch_size": 16}, request.config()
    )
    model = train_central(task, 3, alone.training_options(), request.seed).model
    played = play(base, OWN_SAMPLES, model=model)
    view = played.view(request.adversary)
    truth = Exposed(view.facts, model)
    expected = truth.logits(task.test).argmax(dim=1).numpy()
    inputs = task.test.inputs
    attacks = {
        "does nothing (L0)": raw_predictions,
        "projection (L1)": projected_predictions,
        "fit on own labels (L1)": fitted_predictions,
    }
    for words, attack in attacks.items():
        started = time.process_time()
        guess = attack(view, inputs)
        row = _row(
            request, "attack", words, guess, expected, task.test.targets, time.process_time() - started
        )
        yield replace(row, knowledge=words[-3:-1], threat=repr(view))
    plain = FederationConfig.from_options({"scheme": "plain"}, request.config())
    bare = play(plain, 1, model=model).view("client")
    received = next(message.model for _, message in bare.received(RoundOpened))
    guess = Exposed(bare.facts, received).logits(task.test).argmax(dim=1).numpy()
    words = "the model as received"
    yield _row(request.undefended, "undefended", words, guess, expected, task.test.targets, 0.0)
    untrained = Exposed(view.facts, _first_model(request))
    guess = untrained.logits(task.test).argmax(dim=1).numpy()
    yield _row(request, "null", "untrained model", guess, expected, task.test.targets, 0.0)
    yield _row(request, "oracle", "true model", expected, expected, task.test.targets, 0.0)


def _first_model(request: Request) -> Model:
    return next(replace(request, scheme="plain").stages()).view("server").initial_model


def _row(
    request: Request,
    kind: RowKind,
    words: str,
    guess: NDArray[np.int64],
    expected: NDArray[np.int64],
    labels: NDArray[np.int64],
    cpu_s: float,
) -> Row:
    rate = success_rate(int((guess == expected).sum()), len(expected))
    return Row(
        **vars(heading_of(request, kind, f"predictions, {words}")),
        n=len(expected),
        cpu_s=cpu_s,
        success_rate=rate.value,
        ci_low=rate.low,
        ci_high=rate.high,
        extra={"agreement": rate.value, "accuracy": float(np.mean(guess == labels))},
    )
