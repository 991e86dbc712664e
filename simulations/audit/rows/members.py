"""Rows of membership inference, on the best model that the adversary can form.

The federation trains on images of which a fifth have a wrong label, so that there is something to remember: a model
that generalises perfectly gives no membership away, and an attack on it would show nothing. The null row is the
attack on the first model, which saw nobody's data; the oracle is the attack on the true final model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Samples
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.membership.membership import (
    MembershipInference,
    Scores,
    TrainingStart,
    split_suspects,
)
from veilsum.simulations.attacks.metrics import membership, success_rate
from veilsum.simulations.attacks.model.best import best_model
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.row import Heading, Row, RowKind, readable_model
from veilsum.simulations.audit.stage import Played, attackable_task, play, with_wrong_labels
from veilsum.simulations.audit.steps import Steps

LABEL_NOISE = 0.2
_ROUNDS, _CLIP = 8, 64.0


def membership_rows(attack: MembershipInference, request: Request, steps: Steps) -> Iterator[Row]:
    """What the attack tells by the best model of the view, beside the rows that give it a scale."""
    steps.expect(4)
    steps(f"{request.scheme}: training a model to attack")
    played = _trained(request)
    others = outsiders(request, played)
    view = played.view(request.adversary)
    attacked = best_model(view)
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    row = _row(attack, request, "attack", played, others, attacked)
    yield replace(row, threat=repr(view))
    if not request.is_baseline or request.adversary not in ("server", "client"):
        plain = request.undefended
        bare = _trained(plain)
        yield _row(attack, plain, "undefended", bare, others, bare.model)
    yield _row(attack, request, "null", played, others, view.initial_model)
    yield _row(attack, request, "oracle", played, others, played.model)


def _config(request: Request) -> FederationConfig:
    epochs = max(1, 2 * request.scale.epochs // _ROUNDS)
    options = {
        "payload": "delta",
        "rounds": _ROUNDS,
        "local_epochs": epochs,
        "batch_size": 16,
        "learning_rate": 0.2,
        "clip": _CLIP,
    }
    return FederationConfig.from_options(options, request.config())


def _trained(request: Request) -> Played:
    return play(_config(request), request.scale.members // request.parties, label_noise=LABEL_NOISE)


def outsiders(request: Request, played: Played) -> Samples:
    """As many samples as members, from the test set, with wrong labels as often as the members have."""
    task = attackable_task(played.config)
    wanted = sum(len(one) for one in played.truth.values())
    rng = generator(request.seed, "audit outsiders")
    chosen = rng.permutation(len(task.test)).astype(np.int64)[:wanted]
    return with_wrong_labels(task.test.take(chosen), LABEL_NOISE, int(task.train.targets.max()) + 1, rng)


def _row(
    attack: MembershipInference,
    request: Request,
    kind: RowKind,
    played: Played,
    others: Samples,
    model: Model,
) -> Row:
    started = time.process_time()
    members = Samples.joined(played.truth.values())
    suspects = split_suspects(members, others, generator(request.seed, "audit suspects"))
    known, readable = played.view("server"), readable_model(model)
    start = TrainingStart(known.facts, known.initial_model)
    scores = attack.score(Exposed(known.facts, readable), suspects, start, request.budget, request.seed)
    row = told_row(
        heading_of(request, kind, "membership"), scores, balanced_accuracy=played.accuracy(readable)
    )
    return replace(row, cpu_s=time.process_time() - started)


def told_row(heading: Heading, scores: Scores, **also: float) -> Row:
    """How many of those in question were told right."""
    told = membership(scores.members, scores.others, scores.threshold)
    asked = len(scores.members) + len(scores.others)
    rate = success_rate(round(told.accuracy * asked), asked)
    best = {} if scores.best_epoch_accuracy is None else {"best_epoch_accuracy": scores.best_epoch_accuracy}
    return Row(
        **vars(heading),
        n=asked,
        cpu_s=0.0,
        success_rate=told.accuracy,
        ci_low=rate.low,
        ci_high=rate.high,
        extra={
            "membership_accuracy": told.accuracy,
            "auc": told.auc,
            **best,
            "tpr_at_1_percent_fpr": told.tpr_at_1_percent_fpr,
            **also,
        },
    )
