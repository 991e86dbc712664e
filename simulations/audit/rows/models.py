"""Rows about whole models: who can form the global model, exactly or not at all.

The undefended row is the server of plain FedAvg, which holds the model; the null row is the first model, which
everybody knows; the oracle is the true model itself, hence distance 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from veilsum.protocol.numbers.model import Model
from veilsum.simulations.attacks.attack import ModelRecovery, require_model
from veilsum.simulations.attacks.gradient.targets import gradients_in
from veilsum.simulations.attacks.metrics import model_distance, success_rate
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.model.ampc_coalition import AmpcCoalition
from veilsum.simulations.attacks.model.best import BestModel, best_model
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.row import Row, RowKind, readable_model
from veilsum.simulations.audit.stage import Played
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.sweeps.perturbed_models import predicts_alike, true_updates

NOTE = "global model"
EXACT = 1e-7
HIDDEN, RECOVERS, PREDICTIONS = "hidden", "recovers", "its predictions"


def model_rows(attack: ModelRecovery, request: Request, steps: Steps) -> Iterator[Row]:
    """What the attack makes of the view, beside the rows that give it a scale."""
    request = replace(request, rounds=max(2, request.rounds))
    played = list(request.stages())
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    started = time.process_time()
    views = [one.view(request.adversary) for one in played]
    found = [require_model(attack, attack.form(view), view.facts.dimension) for view in views]
    row = model_row(request, "attack", played, found, time.process_time() - started)
    yield replace(row, threat=repr(played[0].view(request.adversary)))
    plain = request.undefended
    bare = list(plain.stages())
    yield model_row(plain, "undefended", bare, [best_model(one.view("server")) for one in bare], 0.0)
    yield model_row(request, "null", played, [one.view("server").initial_model for one in played], 0.0)
    yield model_row(request, "oracle", played, [one.model for one in played], 0.0)


def model_row(
    request: Request, kind: RowKind, played: Sequence[Played], found: Sequence[Model], cpu_s: float
) -> Row:
    distances = [model_distance(model, one.model) for model, one in zip(found, played, strict=True)]
    exact = sum(distance <= EXACT for distance in distances)
    rate = success_rate(exact, len(distances))
    readable = [readable_model(model) for model in found]
    return Row(
        **vars(heading_of(request, kind, NOTE)),
        n=len(distances),
        cpu_s=cpu_s,
        success_rate=rate.value,
        ci_low=rate.low,
        ci_high=rate.high,
        extra={
            "model_distance": float(np.median(distances)),
            "balanced_accuracy": float(
                np.mean([one.accuracy(model) for one, model in zip(played, readable, strict=True)])
            ),
            "true_balanced_accuracy": float(np.mean([one.accuracy(one.model) for one in played])),
        },
    )


def hides_and_recovers(request: Request) -> Iterator[tuple[str, str, str, str]]:
    """AMPC's Table 1, measured: for each adversary whether it forms local and global models."""
    one = next(replace(request, rounds=2).stages())
    for adversary in ("server", "client", "coalition", "others", "broker"):
        yield request.scheme, adversary, _has_local(one, adversary), _has_global(one, adversary)


def _has_local(played: Played, adversary: str) -> str:
    """Whether the view shows another party's own update."""
    view = played.view(adversary)
    images = len(next(iter(played.truth.values())))
    honest = {key: update for key, update in true_updates(played).items() if key[0] not in view.members}
    for target in gradients_in(view, images):
        truth = honest.get((target.owners[0], target.round)) if len(target.owners) == 1 else None
        if truth is not None and np.corrcoef(target.gradient.astype(np.float64), truth)[0, 1] > 0.99:
            return RECOVERS
    return HIDDEN


def _has_global(played: Played, adversary: str) -> str:
    word = HIDDEN
    for attack in (BestModel(), AmpcCoalition()):
        try:
            found = attack.form(played.view(adversary))
        except AttackDoesNotFit:
            continue
        if model_distance(found, played.model) <= EXACT:
            return RECOVERS
        if played.config.perturbs and predicts_alike(played, found):
            word = PREDICTIONS
    return word
