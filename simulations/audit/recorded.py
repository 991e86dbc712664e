"""An attack on a recorded view: what it finds, without a truth to measure it by.

The matching loss tells how well the found images explain the gradient: relative to its size, 1 is nothing and below
1e-6 is as good as proof. The null value of the same attack on noise stands beside it. A model that was formed is told
by its hash, to be compared with those that the processes told. How many images stand behind an update is assumed.
"""

from __future__ import annotations

import time

import torch

from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.learning.training.determinism import one_thread
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import require_findings
from veilsum.simulations.attacks.gradient.inverting import mean_change
from veilsum.simulations.attacks.gradient.matching import Reconstruction, Victim
from veilsum.simulations.attacks.metrics import clamp
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import PICTURES, Heading, Picture, Row, RowKind
from veilsum.simulations.audit.runner import Outcome


def attack_view(view: View, request: Request) -> Outcome:
    """One row for each finding, and one for noise where images are found; Ctrl-C keeps the rows done so far."""
    outcome, attack = Outcome(), request.entry
    try:
        with one_thread():
            started = time.process_time()
            run = attack.run(view, request.budget, request.seed)
            found = require_findings(attack, run, view.facts.dimension)
            if found.model is not None:
                outcome.rows.append(_model_row(view, request, found.model, time.process_time() - started))
                note = "no truth is known for a recorded view: compare the hash with the one that the run reported"
                return Outcome(outcome.rows, [note])
            for one in found.images:
                outcome.rows.append(_row(view, request, "attack", one))
            for one in attack.run_on_noise(view, request.budget, request.seed).images:
                outcome.rows.append(_row(view, request, "null", one))
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.notes.append("no truth is known for a recorded view: judge the pictures and the matching loss")
    return outcome


def _model_row(view: View, request: Request, model: Model, cpu_s: float) -> Row:
    """A model that was formed, by its hash."""
    digest = sha256_of(model)
    return Row(
        **vars(_heading(view, request, "attack", f"global model after {len(view.rounds)} rounds")),
        n=1,
        cpu_s=cpu_s,
        extra={"model_sha256": digest},
        recorded=True,
        note=f"sha256 {digest[:16]}",
        threat=repr(view),
    )


def _heading(view: View, request: Request, kind: RowKind, target: str) -> Heading:
    return Heading(
        scheme=view.facts.scheme,
        defence=view.facts.defence,
        adversary=view.adversary,
        attack=request.attack,
        knowledge="L2" if len(view.members) > 1 else request.entry.knowledge,
        row=kind,
        target=target,
    )


def _measured_loss(found: Reconstruction) -> float:
    """How well the images explain the gradient; an attack that solves for them tells 0 without having looked."""
    if found.match_loss:
        return found.match_loss
    victim = Victim(found.target)
    images = torch.from_numpy(found.images).to(victim.device, victim.dtype)
    labels = torch.from_numpy(found.labels).long().to(victim.device)
    return float(victim.mismatch(mean_change(victim.module, images, labels, found.target)).detach())


def _row(view: View, request: Request, kind: RowKind, found: Reconstruction) -> Row:
    loss = _measured_loss(found)
    images = clamp(found.images).astype("float32")[:PICTURES]
    labels = ", ".join(str(label) for label in found.labels)
    return Row(
        **vars(
            _heading(
                view, request, kind, f"{found.target.note_without_batch}, {'+'.join(found.target.owners)}"
            )
        ),
        n=found.target.batch,
        cpu_s=found.cpu_s,
        extra={
            "match_loss": loss,
            "labels": labels,
            "images_assumed": found.target.batch // len(found.target.owners),
        },
        recorded=True,
        note=f"matching loss {loss:.1e}, labels {labels}",
        threat=repr(view) if kind == "attack" else "",
        pictures=[Picture(None, image, f"loss {loss:.1e}") for image in images],
    )
