"""An attack on a recorded view: what it finds, without a truth to measure it by.

The matching loss tells how well the found images explain the gradient: relative to its size, 1 is nothing and below
1e-6 is as good as proof. The null value of the same attack on noise stands beside it. A model that was formed is told
by its hash, to be compared with those that the processes told.
"""

from __future__ import annotations

import time

from veilsum.protocol.errors import ParameterError
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Reconstruction, one_thread
from veilsum.simulations.attacks.gradient.targets import Target, as_noise, gradients_in
from veilsum.simulations.attacks.metrics import clamp
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import PICTURES, Picture, Row, RowKind
from veilsum.simulations.audit.runner import Outcome


def attack_view(view: View, request: Request) -> Outcome:
    """One row for each gradient in the view, and one for noise; Ctrl-C keeps the rows done so far."""
    if request.entry.kind == "model":
        return _form_model(view, request)
    if request.entry.kind != "gradient":
        raise ParameterError(
            [
                f"{request.attack} needs a played federation; a recorded view fits attacks on gradients and models"
            ]
        )
    targets = gradients_in(view, request.images)
    if not targets:
        raise AttackDoesNotFit(f"the view of {view.adversary} holds no gradient of anyone else")
    invert, outcome = request.entry.load(), Outcome()
    jobs: list[tuple[RowKind, Target]] = [("attack", target) for target in targets]
    jobs.append(("null", as_noise(targets[0], request.seed)))
    try:
        with one_thread():
            for kind, target in jobs:
                found = invert(target, request.scale.budget, request.seed)
                outcome.rows.append(_row(view, request, kind, found))
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.notes.append("no truth is known for a recorded view: judge the pictures and the matching loss")
    return outcome


def _form_model(view: View, request: Request) -> Outcome:
    """The best model that the view gives, by its hash."""
    started = time.process_time()
    model = request.entry.load()(view)
    digest = sha256_of(model)
    row = Row(
        scheme=view.facts.scheme,
        defence=view.facts.defence,
        adversary=view.adversary,
        attack=request.attack,
        knowledge="L2" if len(view.members) > 1 else request.entry.knowledge,
        row="attack",
        target=f"global model after {len(view.rounds)} rounds",
        n=1,
        cpu_s=time.process_time() - started,
        extra={"model_sha256": digest},
        note=f"sha256 {digest[:16]}",
        threat=repr(view),
    )
    note = "no truth is known for a recorded view: compare the hash with the one that the run reported"
    return Outcome([row], [note])


def _row(view: View, request: Request, kind: RowKind, found: Reconstruction) -> Row:
    images = clamp(found.images).astype("float32")[:PICTURES]
    labels = ", ".join(str(label) for label in found.labels)
    return Row(
        scheme=view.facts.scheme,
        defence=view.facts.defence,
        adversary=view.adversary,
        attack=request.attack,
        knowledge="L2" if len(view.members) > 1 else request.entry.knowledge,
        row=kind,
        target=f"{found.target.note}, {'+'.join(found.target.owners)}",
        n=found.target.batch,
        cpu_s=found.cpu_s,
        extra={"match_loss": found.match_loss, "labels": labels},
        note=f"matching loss {found.match_loss:.1e}, labels {labels}",
        threat=repr(view) if kind == "attack" else "",
        pictures=[Picture(None, image, f"loss {found.match_loss:.1e}") for image in images],
    )
