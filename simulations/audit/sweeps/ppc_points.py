"""One point of a PPC: train with a defence for its accuracy, attack one gradient under it for its distance.

Accuracy and distance come from the same defence, model and seed; the attack is at the first model, where the papers
attack, on single images. Noise is what the defence adds to the uploaded change, so that at learning rate 1 both
uses agree; the table says sigma as it was set. Naive attacks ignore the defence (DLG); adaptive ones know it.

The ratio of signal to perturbation is given over all bias gradients below the head, and layer by layer with the head:
the paper does not say which layer it means, and SPN leaves the head untouched: the ratio has no bound there.
The cosine is between the clean gradient and what the defence added to it; for SPN that is the cosine between the
gradients of cross entropy and polarization loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.defences.defence import Trial
from veilsum.roles.learning.defences.parse import split_settings
from veilsum.roles.learning.defences.registry import find_defence
from veilsum.simulations.attacks.gradient.matching import Reconstruction, Victim
from veilsum.simulations.attacks.gradient.targets import Target, as_noise
from veilsum.simulations.attacks.metrics import relative_errors
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import clean_targets, heading_of, targets_of
from veilsum.simulations.audit.rows.memory import inverted
from veilsum.simulations.audit.rows.row import Row, RowKind, image_row
from veilsum.simulations.audit.scales import Scale
from veilsum.simulations.audit.stage import Played, balanced_accuracy, pixels
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.sweeps.cap import Point
from veilsum.simulations.run.simulate import simulate

NAIVE = "dlg"


def trial_of(defence: str) -> Trial:
    """How a defence, written with or without settings, says that it is tried."""
    return find_defence(split_settings(defence)[0]).trial


@dataclass(frozen=True)
class UndefendedJob:
    """The accuracy without a defence, as a point with no perturbation."""

    request: Request
    heavy = False
    bundle = "undefended"

    def items(self, steps: Steps) -> Iterator[Point]:
        steps("training without a defence")
        yield Point("none", 0.0, float("inf"), trained_accuracy(self.request, self.request.scale), {})


@dataclass(frozen=True)
class ReferenceJob:
    """One attack of the curves on clean gradients and on noise of the same size."""

    request: Request
    heavy = False

    @property
    def bundle(self) -> str:
        return f"reference {self.request.attack}"

    def items(self, steps: Steps) -> Iterator[Row]:
        played = next(self.request.stages())
        clean = [(target, played) for target in clean_targets(self.request, played)]
        noise = [(as_noise(target, self.request.seed), played) for target, _ in clean]
        kinds: tuple[tuple[RowKind, list[tuple[Target, Played]]], ...] = (
            ("undefended", clean),
            ("null", noise),
        )
        steps.expect(2 * len(clean))
        for kind, targets in kinds:
            yield replace(_attacked(self.request, targets, steps)[0], row=kind)


@dataclass(frozen=True)
class PointJob:
    """One setting of one defence; the request carries the defence in full."""

    request: Request
    family: str
    value: float
    heavy = False

    @property
    def bundle(self) -> str:
        return f"point {self.request.defence}"

    def items(self, steps: Steps) -> Iterator[tuple[Point, list[Row]]]:
        started = time.process_time()
        steps.expect(1 + 2 * self.request.parties)
        steps(f"training with {self.request.defence}")
        accuracy = trained_accuracy(self.request, self.request.scale)
        played = next(self.request.stages())
        targets = [(target, played) for target in targets_of(self.request, played)]
        distances: dict[str, dict[str, float]] = {}
        rows = []
        for level, attack in (("naive", NAIVE), ("adaptive", trial_of(self.family).adaptive)):
            row, raw = _attacked(replace(self.request, attack=attack), targets, steps)
            rows.append(row)
            distances[level] = {
                "rmse": row.extra["rmse_capped"],
                "rmse_raw": raw,
                "label": row.extra["label_distance"],
                "tracing": row.extra["tracing_by_index"],
            }
        ratio, layers, cosine = perturbation([one for one, _ in targets], clean_targets(self.request, played))
        spent = time.process_time() - started
        yield Point(self.family, self.value, ratio, accuracy, distances, spent, layers, cosine), rows


def _attacked(request: Request, targets: Sequence[tuple[Target, Played]], steps: Steps) -> tuple[Row, float]:
    """The row, and the mean relative error as the papers print it: without clamping."""
    found: list[Reconstruction] = []
    for target, _ in targets:
        steps(f"{request.defence or 'no defence'}, {request.attack}")
        found.append(inverted(request.entry, target, request.scale.ppc_budget, request.seed))
    row = image_row(
        heading_of(request, "attack", targets[0][0].note),
        found,
        [dict(played.truth) for _, played in targets],
    )
    errors = [
        relative_errors(
            one.images,
            np.concatenate([pixels(played.truth[name]) for name in one.target.owners]),
            clamped=False,
        )
        for one, (_, played) in zip(found, targets, strict=True)
    ]
    return row, float(np.concatenate(errors).mean())


def trained_accuracy(request: Request, scale: Scale) -> float:
    """The test accuracy of a federation that trains with the defence on all data.

    Two parties: the paper lets ten take turns, which is one long training; averaging many short ones would leave every
    setting undertrained within these rounds, and CAP would measure that.
    """
    options = {
        "rounds": scale.training_rounds,
        "payload": "delta",
        "optimizer": "adam",
        "learning_rate": 0.015,
        "local_epochs": 2,
        "batch_size": 32,
        "parties": 2,
    }
    config = FederationConfig.from_options(options, request.config())
    metrics = simulate(config, verify=False).metrics
    return balanced_accuracy(metrics)


def perturbation(
    defended: Sequence[Target], clean: Sequence[Target]
) -> tuple[float, dict[str, float], float]:
    """|B| / |E| of the bias gradients below the head, the same by layer, and cos(G, E) over all layers below it."""
    signal: dict[str, float] = {}
    added: dict[str, float] = {}
    across = inside = outside = 0.0
    for target, reference in zip(defended, clean, strict=True):
        ours, theirs = Victim(target), Victim(reference)
        for entry, a, b in zip(ours.entries, ours.gradient, theirs.gradient, strict=True):
            apart, plain = (a - b).double(), b.double()
            if entry.name.endswith("bias"):
                layer = entry.name.removesuffix(".bias")
                signal[layer] = signal.get(layer, 0.0) + float(plain.square().sum())
                added[layer] = added.get(layer, 0.0) + float(apart.square().sum())
            if entry.name.startswith("features"):
                across += float((apart * plain).sum())
                inside += float(plain.square().sum())
                outside += float(apart.square().sum())
    below = [layer for layer in signal if layer.startswith("features")]
    ratio = _ratio(sum(signal[layer] for layer in below), sum(added[layer] for layer in below))
    cosine = across / (inside * outside) ** 0.5 if inside and outside else 0.0
    return ratio, {layer: _ratio(signal[layer], added[layer]) for layer in signal}, cosine


def _ratio(signal: float, added: float) -> float:
    return float(np.sqrt(signal / added)) if added else float("inf")
