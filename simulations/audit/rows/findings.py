"""Rows of any attack that makes findings of a view: its images and its model, measured against the truth.

The undefended row is the same attack on the server of plain FedAvg. The null row guesses: images of noise, the first
model, which everybody knows. The oracle row is the truth itself: the scale's other end.

Implements specs/attacks.md, section 7.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Samples
from veilsum.simulations.attacks.attack import Attack, Findings, require_findings
from veilsum.simulations.attacks.gradient.matching import Reconstruction
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.models import model_row
from veilsum.simulations.audit.rows.row import Row, RowKind, image_row
from veilsum.simulations.audit.stage import Played, pixels
from veilsum.simulations.audit.steps import Steps

Found = Sequence[tuple[Findings, Played]]


def found_rows(attack: Attack, request: Request, steps: Steps) -> Iterator[Row]:
    request = replace(request, model=request.architecture)
    steps.expect(2)
    played = list(request.stages())
    found, cpu_s = _run(attack, request, played, steps)
    for row in _rows(request, "attack", found, cpu_s):
        yield replace(row, threat=repr(played[0].view(request.adversary)))
    if not request.references:
        return
    if not request.is_baseline or request.adversary != "server":
        plain = request.undefended
        bare, cpu_s = _run(attack, plain, list(plain.stages()), steps)
        yield from _rows(plain, "undefended", bare, cpu_s)
    yield from _rows(request, "null", [(_guessed(request, one, at), at) for one, at in found], 0.0)
    yield from _rows(request, "oracle", [(_given(one, at), at) for one, at in found], 0.0)


def _run(attack: Attack, request: Request, played: Sequence[Played], steps: Steps) -> tuple[Found, float]:
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    started, found = time.process_time(), []
    for one in played:
        view = one.view(request.adversary)
        made = require_findings(attack, attack.run(view, request.budget, request.seed), view.facts.dimension)
        found.append((replace(made, images=tuple(made.images)), one))
    if not any(made.images or made.model is not None for made, _ in found):
        raise AttackDoesNotFit(f"{request.attack} found neither images nor a model in this view")
    return found, time.process_time() - started


def _rows(request: Request, kind: RowKind, found: Found, cpu_s: float) -> Iterator[Row]:
    images = [(one, at) for made, at in found for one in made.images]
    if images:
        heading = heading_of(request, kind, images[0][0].target.note)
        yield image_row(heading, [one for one, _ in images], [dict(at.truth) for _, at in images])
    models = [(made.model, at) for made, at in found if made.model is not None]
    if models:
        yield model_row(request, kind, [at for _, at in models], [one for one, _ in models], cpu_s)


def _guessed(request: Request, made: Findings, played: Played) -> Findings:
    draw = generator(request.seed, "guessed images")
    images = [
        replace(one, images=draw.random(one.images.shape).astype(np.float32), cpu_s=0.0)
        for one in made.images
    ]
    return Findings(images, None if made.model is None else played.view("server").initial_model)


def _given(made: Findings, played: Played) -> Findings:
    return Findings(
        [_truth_of(one, played) for one in made.images], None if made.model is None else played.model
    )


def _truth_of(one: Reconstruction, played: Played) -> Reconstruction:
    held = Samples.joined(played.truth[name] for name in one.target.owners)
    return replace(one, images=pixels(held), labels=held.targets, match_loss=0.0, cpu_s=0.0)
