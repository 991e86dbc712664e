"""Rows of the attacks with a generative prior: gradient inversion (images) and model inversion (classes).

Private classes are the upper half of the task's classes, public ones the lower half. Parties hold private images only;
the prior sees public ones only. The evaluator of model inversion is an independent network trained on the private
classes by nobody in the federation, so that fooling the attacked model is not counted as success.

Success and distances are given twice. As they should be: judged by the evaluator, squared distances between features of
the true model, to the nearest private sample of the wanted class. As printed in the paper on server-side perturbation:
judged by the attacked model itself, distances between that model's own features, to the nearest training sample of any
class. Under the second reading a useless model looks well protected, since its features are far from everything.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.task import Task
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.gradient.generative import Generative
from veilsum.simulations.attacks.gradient.targets import Target, as_noise
from veilsum.simulations.attacks.metrics import feature_distance, nearest_distance, success_rate
from veilsum.simulations.attacks.model.best import best_model
from veilsum.simulations.attacks.model.gan import Prior, train_prior
from veilsum.simulations.attacks.model.gmi import Gmi
from veilsum.simulations.audit.request import BASELINE, Request
from veilsum.simulations.audit.rows.evaluators import classes_shown, evaluator
from veilsum.simulations.audit.rows.gradient import clean_targets, heading_of, targets_of
from veilsum.simulations.audit.rows.row import Picture, Row, RowKind, image_row, readable_model
from veilsum.simulations.audit.stage import Played, attackable_task, pixels, play
from veilsum.simulations.audit.steps import Steps

_PER_CLASS = 8


def generative_rows(attack: Generative, request: Request, steps: Steps) -> Iterator[Row]:
    """Inversion of gradients with the prior, beside the null row that a prior makes indispensable."""
    request = replace(request, model=request.architecture)
    task = attackable_task(request.config())
    private = private_classes(task)
    steps("training a prior on public classes")
    prior = _prior(task, private, request)
    played = [
        play(request.config(), request.images, draw, classes=private) for draw in range(request.scale.draws)
    ]
    targets = [(target, one) for one in played for target in targets_of(request, one)]
    steps.expect(3 * len(targets))
    found = _images(attack, request, "attack", targets, prior, steps)
    yield found
    half = max(2, len(targets) // 2)
    clean = [(target, one) for one in played for target in clean_targets(request, one)]
    noise = [(as_noise(target, request.seed), one) for target, one in clean[:half]]
    yield _images(attack, request, "null", noise, prior, steps)
    if request.is_baseline and request.adversary == "server":
        # The server of plain FedAvg holds what an oracle is given.
        yield replace(found, row="oracle", threat="")
        return
    oracle = _images(attack, request, "oracle", clean[:half], prior, steps)
    yield oracle
    yield from _undefended(request, oracle)


def _images(
    attack: Generative,
    request: Request,
    kind: RowKind,
    targets: Sequence[tuple[Target, Played]],
    prior: Prior,
    steps: Steps,
) -> Row:
    found = []
    for target, _ in targets:
        steps(f"{request.scheme}/{request.adversary}/{request.attack}, {kind}")
        found.append(attack.invert(target, request.scale.budget, request.seed, prior))
    row = image_row(
        heading_of(request, kind, targets[0][0].note),
        found,
        [dict(one.truth) for _, one in targets],
        functools.partial(classes_shown, request),
    )
    return replace(row, threat=repr(targets[0][1].view(request.adversary)) if kind == "attack" else "")


def gmi_rows(attack: Gmi, request: Request, steps: Steps) -> Iterator[Row]:
    """Inversion of the best model that the adversary can form."""
    request = replace(request, model=request.architecture)
    task = attackable_task(request.config())
    private = private_classes(task)
    steps("training a prior on public classes")
    prior = _prior(task, private, request)
    options = {"payload": "delta", "rounds": 4, "local_epochs": 5, "batch_size": 16, "clip": 64.0}
    config = FederationConfig.from_options(options, request.config())
    played = play(config, request.scale.members // request.parties, classes=private)
    judge = evaluator(task, private, request.seed)
    view = played.view(request.adversary)
    for kind, model in _models(view.initial_model, best_model(view), played.model):
        steps(f"{request.scheme}/{request.adversary}/{request.attack}, {kind}")
        row = _inverted(attack, request, kind, played, model, prior, judge, private)
        yield replace(row, threat=repr(view) if kind == "attack" else "")
    yield from _undefended(request, row)


def _undefended(request: Request, oracle: Row) -> Iterator[Row]:
    """The server of plain FedAvg holds what the oracle is given: the same numbers, beside the others."""
    if not request.is_baseline:
        yield replace(oracle, row="undefended", scheme=BASELINE, defence="none", adversary="server")


def _models(initial: Model, held: Model, true: Model) -> Iterator[tuple[RowKind, Model]]:
    yield "attack", readable_model(held)
    yield "null", initial
    yield "oracle", true


def _inverted(
    attack: Gmi,
    request: Request,
    kind: RowKind,
    played: Played,
    model: Model,
    prior: Prior,
    judge: torch.nn.Module,
    private: Sequence[int],
) -> Row:
    started = time.process_time()
    exposed = Exposed(played.view("server").facts, model)
    true_model = Exposed(played.view("server").facts, played.model)
    held = list(played.truth.values())
    inputs = np.concatenate([pixels(one) for one in held])
    labels = np.concatenate([one.targets for one in held])
    everyone = _features(exposed, inputs)
    hits, found, shown = 0, defaultdict[str, list[float]](list), []
    for label in private:
        made = attack.invert(
            exposed, prior, label, _PER_CLASS, request.scale.budget.evaluations, request.seed
        )
        images = torch.from_numpy(made)
        with torch.no_grad():
            hits += int((judge(images).argmax(dim=1) == label).sum())
            taken = (exposed.module(images).argmax(dim=1) == label).float().mean()
        mine, there = _features(true_model, inputs[labels == label]), _features(true_model, made)
        seen = _features(exposed, made)
        found["feature_distance"].append(feature_distance(there, mine.mean(axis=0)))
        found["knn_distance"].append(nearest_distance(there, mine))
        centre = everyone[labels == label].mean(axis=0)
        found["feature_distance_as_printed"].append(feature_distance(seen, centre, squared=False))
        found["knn_distance_as_printed"].append(nearest_distance(seen, everyone, squared=False))
        found["success_as_printed"].append(float(taken))
        shown.append(Picture(inputs[labels == label][0], made[0], f"class {label}"))
    total = _PER_CLASS * len(private)
    rate = success_rate(hits, total)
    return Row(
        **vars(heading_of(request, kind, "classes of the model")),
        n=total,
        cpu_s=time.process_time() - started,
        success_rate=rate.value,
        ci_low=rate.low,
        ci_high=rate.high,
        extra={name: float(np.mean(values)) for name, values in found.items()},
        pictures=shown,
    )


def _features(exposed: Exposed, images: np.ndarray) -> np.ndarray:
    features = exposed.module.get_submodule("features")
    with torch.no_grad():
        found: np.ndarray = features(torch.from_numpy(images)).numpy().astype(np.float64)
    return found


def private_classes(task: Task) -> list[int]:
    """The upper half of the classes."""
    classes = int(task.train.targets.max()) + 1
    return list(range(classes // 2, classes))


def _prior(task: Task, private: Sequence[int], request: Request) -> Prior:
    public = task.train.take(np.flatnonzero(~np.isin(task.train.targets, private)))
    return train_prior(pixels(public), request.scale.generator_steps, request.seed)
