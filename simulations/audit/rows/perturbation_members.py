"""Rows of membership inference by a client of perturbed training: one for each way in which it comes by outputs.

The model is trained on images of which a fifth have a wrong label, so that there is something to remember.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.compare import train_central
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.membership.loss import scores_by_loss
from veilsum.simulations.attacks.membership.membership import split_suspects
from veilsum.simulations.attacks.perturbation.members import PerturbedMembership
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.members import LABEL_NOISE, outsiders, told_row
from veilsum.simulations.audit.rows.perturbation import TriedPerturbation, announce
from veilsum.simulations.audit.rows.row import Row, RowKind
from veilsum.simulations.audit.stage import FewImages, Played, attackable_task, play
from veilsum.simulations.audit.steps import Steps

TRIED = TriedPerturbation("ce", 10)
_ROUNDS = 3


def perturbation_membership_rows(
    attack: PerturbedMembership, request: Request, steps: Steps
) -> Iterator[Row]:
    """By raw outputs, after the fit, and by the protected model; beside them what the true model gives."""
    announce(request, steps)
    images = request.scale.members // request.parties
    model = _remembering_model(request, images)
    options = {"loss": TRIED.loss, "groups": TRIED.groups, "gamma": TRIED.gamma}
    config = FederationConfig.from_options(options, request.config())
    played = play(config, images, model=model, label_noise=LABEL_NOISE)
    view = played.view(request.adversary)
    others = outsiders(request, played)
    for one in attack.exposures(view):
        row = _row(request, "attack", f"membership: {one.words}; {TRIED}", played, others, one.exposed)
        knowledge = row.knowledge if len(view.members) > 1 else one.knowledge
        yield replace(row, knowledge=knowledge, cpu_s=one.cpu_s, threat=repr(view))
    if request.references:
        true, first = (Exposed(view.facts, one) for one in (model, view.initial_model))
        yield _row(
            request.undefended, "undefended", "membership: the model as received", played, others, true
        )
        yield _row(request, "null", "membership: the first model, which saw nobody", played, others, first)
        yield _row(request, "oracle", "membership: the true model", played, others, true)


def _remembering_model(request: Request, images: int) -> Model:
    """Trained on the images that the parties of the federation will hold."""
    plain = request.unprotected.config()
    held = play(plain, images, label_noise=LABEL_NOISE).truth.values()
    together = Samples.joined(held)
    options = {
        "payload": "model",
        "local_epochs": request.scale.epochs // _ROUNDS,
        "batch_size": 16,
        "learning_rate": 0.2,
    }
    alone = FederationConfig.from_options(options, plain)
    few = FewImages(attackable_task(plain), together)
    return train_central(few, _ROUNDS, alone.training_options(), request.seed).model  # type: ignore[arg-type]  # a Task by delegation


def _row(
    request: Request,
    kind: RowKind,
    target: str,
    played: Played,
    others: Samples,
    exposed: Exposed,
) -> Row:
    """Members are those of the other parties: a client knows its own."""
    _, *rest = played.truth.values()
    members = Samples.joined(rest)
    strangers = others.take(np.arange(len(members)))
    suspects = split_suspects(members, strangers, generator(request.seed, "audit suspects"))
    return told_row(heading_of(request, kind, target), scores_by_loss(exposed, suspects))
