"""Rows of membership inference by a client of perturbed training.

The publications report an attack at chance, because their attacker feeds itself the noisy outputs. This one first takes
the offset off with its own labels, and the members of the other parties show as they do in the true model. After
training, every client also keeps a protected model with true predictions: it shows them as well, without any fit.

The model is trained on images of which a fifth have a wrong label, so that there is something to remember.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from veilsum.protocol.machines.session import Farewell
from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.compare import train_central
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.membership.membership import Exposed, loss_threshold, split_suspects
from veilsum.simulations.attacks.perturbation.cross_entropy import Reals
from veilsum.simulations.attacks.perturbation.least_squares import remove_offset
from veilsum.simulations.attacks.perturbation.predictions import PerturbedModel, fit_offset
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.members import LABEL_NOISE, outsiders, told_row
from veilsum.simulations.audit.rows.perturbation import TriedPerturbation, announce
from veilsum.simulations.audit.rows.row import Row, RowKind
from veilsum.simulations.audit.stage import FewImages, Played, attackable_task, play
from veilsum.simulations.audit.steps import Steps

TRIED = TriedPerturbation("ce", 10)
_ROUNDS = 3


class Seen(Exposed):
    """A perturbed model in a client's hands, less an offset."""

    def __init__(self, view: View, offset: Reals) -> None:
        self._perturbed = PerturbedModel(view)
        self._offset = offset
        self.module = self._perturbed.module
        self.classes = view.facts.outputs

    def logits(self, samples: Samples) -> torch.Tensor:
        outputs, alpha = self._perturbed.outputs(samples.inputs)
        return torch.from_numpy(remove_offset(outputs, alpha, self._offset))


def perturbation_membership_rows(request: Request, steps: Steps) -> Iterator[Row]:
    """By raw outputs, after the fit, and by the protected model; beside them what the true model gives."""
    announce(request, steps)
    images = request.scale.members // request.parties
    model = _remembering_model(request, images)
    options = {"loss": TRIED.loss, "groups": TRIED.groups, "gamma": TRIED.gamma}
    config = FederationConfig.from_options(options, request.config())
    played = play(config, images, model=model, label_noise=LABEL_NOISE)
    view = played.view(request.adversary)
    others = outsiders(request, played)
    for words, level, exposed, cpu_s in _exposures(view):
        row = _row(request, "attack", f"membership: {words}; {TRIED}", played, others, exposed, cpu_s)
        pooled = len(view.members) > 1
        yield replace(row, knowledge=row.knowledge if pooled else level, threat=repr(view))
    if request.references:
        true, first = (Exposed(view.facts, one) for one in (model, view.initial_model))
        yield _row(
            request.undefended, "undefended", "membership: the model as received", played, others, true
        )
        yield _row(request, "null", "membership: the first model, which saw nobody", played, others, first)
        yield _row(request, "oracle", "membership: the true model", played, others, true)


def _exposures(view: View) -> Iterator[tuple[str, str, Exposed, float]]:
    yield "raw outputs", "L0", Seen(view, np.zeros(view.facts.outputs)), 0.0
    started = time.process_time()
    perturbed = PerturbedModel(view)
    outputs, alpha = perturbed.outputs(perturbed.own.inputs)
    fitted = Seen(view, fit_offset(outputs, alpha, perturbed.own.targets))
    yield "after the fit", "L1", fitted, time.process_time() - started
    kept = [message.model for _, message in view.received(Farewell) if len(message.model)]
    if kept:
        yield "the protected model it keeps", "L0", Exposed(view.facts, kept[-1]), 0.0


def _remembering_model(request: Request, images: int) -> Model:
    """Trained on the images that the parties of the federation will hold."""
    plain = replace(request, scheme="plain", defence="").config()
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
    cpu_s: float = 0.0,
) -> Row:
    """Members are those of the other parties: a client knows its own."""
    _, *rest = played.truth.values()
    members = Samples.joined(rest)
    strangers = others.take(np.arange(len(members)))
    suspects = split_suspects(members, strangers, generator(request.seed, "audit suspects"))
    scores = loss_threshold(exposed, suspects, request.scale.epochs, request.seed)
    return replace(told_row(heading_of(request, kind, target), scores), cpu_s=cpu_s)
