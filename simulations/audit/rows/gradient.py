"""Rows of a gradient inversion: the attack, and the three rows without which it says little.

* undefended: the same attack on plain FedAvg. If this one fails, nothing is learned about a defence.
* null: the same attack on noise of the same size. What it "rebuilds" comes from the attack, not from the view.
* oracle: the attacker is given the secret, hence the clean gradient of each party at the same model. If the attack
  fails and the oracle succeeds, the defence did it; if both fail, the optimiser did.

Implements specs/attacks.md, section 7.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from veilsum.roles.learning.task import Samples
from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.carried import why_no_gradient
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target, as_noise, gradients_in
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.evaluators import classes_shown
from veilsum.simulations.audit.rows.memory import inverted
from veilsum.simulations.audit.rows.row import Heading, Row, RowKind, image_row
from veilsum.simulations.audit.stage import FewImages, Played, attackable_task
from veilsum.simulations.audit.steps import Steps


def gradient_rows(attack: GradientInversion, request: Request, steps: Steps) -> Iterator[Row]:
    """The rows of one request; `steps` is told before each attack on a target."""
    request = replace(request, model=request.architecture)
    played = list(request.stages())
    targets = [(target, one) for one in played for target in targets_of(request, one)]
    # Reference rows attack all uploads undefended, and half of them as null and as oracle.
    steps.expect(len(targets) + (2 * request.parties * len(played) if request.references else 0))
    yield from attack_rows(attack, request, targets, "attack", steps)
    if request.references:
        yield from reference_rows(attack, request, played, steps)


def reference_rows(
    attack: GradientInversion, request: Request, played: Sequence[Played], steps: Steps
) -> Iterator[Row]:
    if not request.is_baseline or request.adversary != "server":
        plain = request.undefended
        bare = [(target, one) for one in plain.stages() for target in targets_of(plain, one)]
        yield from attack_rows(attack, plain, bare, "undefended", steps)
    half = max(2, request.parties // 2)
    clean = [(target, one) for one in played for target in clean_targets(request, one)[:half]]
    noise = [(as_noise(target, request.seed), one) for target, one in clean[:half]]
    yield from attack_rows(attack, request, noise, "null", steps)
    yield from attack_rows(attack, request, clean, "oracle", steps)


def targets_of(request: Request, played: Played) -> list[Target]:
    view = played.view(request.adversary)
    targets = gradients_in(view, request.images)
    if request.only_sums:
        targets = [one for one in targets if one.kind != "upload"]
    if not targets:
        raise AttackDoesNotFit(
            f"{request.attack} needs a gradient, and the view of {view.adversary} under {request.scheme} has none: "
            f"{why_no_gradient(view)}"
        )
    return targets


def attack_rows(
    attack: GradientInversion,
    request: Request,
    targets: Sequence[tuple[Target, Played]],
    kind: RowKind,
    steps: Steps,
) -> Iterator[Row]:
    """One row for each kind of target: single uploads and sums tell different stories."""
    by_kind: dict[str, list[tuple[Target, Played]]] = defaultdict(list)
    for target, played in targets:
        steps_taken = f", {target.local_steps} local steps" if target.local_steps > 1 else ""
        by_kind[target.note + steps_taken].append((target, played))
    for note, group in by_kind.items():
        found: list[Reconstruction] = []
        for target, _ in group:
            steps(f"{request.scheme}/{request.adversary}/{request.attack}, {kind}")
            found.append(inverted(attack, target, request.budget, request.seed))
        heading = heading_of(request, kind, note)
        shown = functools.partial(classes_shown, request)
        row = image_row(heading, found, [dict(played.truth) for _, played in group], shown)
        threat = repr(group[0][1].view(request.adversary)) if kind == "attack" else ""
        yield replace(row, threat=threat)


def heading_of(request: Request, kind: RowKind, note: str) -> Heading:
    pooled = request.adversary in ("coalition", "others") or "+" in request.adversary
    return Heading(
        scheme=request.scheme,
        defence=request.defence or "none",
        adversary=request.adversary,
        attack=request.attack,
        knowledge="L2" if pooled else request.entry.knowledge,
        row=kind,
        target=note,
    )


def clean_targets(request: Request, played: Played) -> list[Target]:
    """What the secret would show: each party's unprotected update at the first model."""
    bare = request.unprotected.config()
    task = attackable_task(bare)
    view = played.view("server")
    owners = list(played.config.parties)
    template = gradients_in(played.view(owners[0]), request.images) or gradients_in(view, request.images)
    few = FewImages(task, Samples.joined(played.truth[name] for name in owners))
    targets = []
    for name in owners:
        update = few.learner(bare, name).train(view.initial_model, 0)
        gradient = update.payload
        if bare.payload != "gradient":
            delta = gradient - view.initial_model if bare.payload == "model" else gradient
            gradient = (-delta / np.float32(bare.learning_rate)).astype(np.float32)
        targets.append(
            replace(
                template[0],
                kind="upload",
                owners=(name,),
                round=0,
                batch=request.images,
                model=view.initial_model,
                gradient=gradient,
            )
        )
    return targets
