"""One party's updates over several rounds on the same data: noise averages out, sketches add up.

*Noise.* Each round brings a fresh draw of noise on a gradient of the same images, at another model. Matching all rounds
at once is the maximum-likelihood estimate under Gaussian noise; the noise falls as one over the root of the rounds.

*Sketches.* A sketched dense layer shows the input of its round only up to the sketch S, which is public: x S. Two
numbers fall into a bucket, so one round leaves half of them open. Another round has another S, and a few rounds
are a linear system with one solution.

Implements specs/attacks.md, section 3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from veilsum.roles.learning.defences.parse import find_part
from veilsum.roles.learning.defences.sketch.guard import CountSketch
from veilsum.roles.learning.defences.sketch.settings import Sketch
from veilsum.simulations.attacks.attack import SeriesInversion
from veilsum.simulations.attacks.gradient.analytic import Analytic, first_dense
from veilsum.simulations.attacks.gradient.labels import recover_labels
from veilsum.simulations.attacks.gradient.matching import (
    AttackDoesNotFit,
    Budget,
    Reconstruction,
    Victim,
    minimise,
    rebuilt,
)
from veilsum.simulations.attacks.gradient.targets import Target


class DpAveraging(SeriesInversion):
    """Images that match all rounds of one party at once; its label by the mean of the last layer's gradients."""

    name = "dp-averaging"
    knowledge = "L1"
    summary = "matches all rounds at once"
    against = "dp"

    def invert(self, targets: Sequence[Target], budget: Budget, seed: int) -> Reconstruction:
        victims = [Victim(target) for target in targets]
        first = targets[0]
        averaged = Victim(first)
        averaged.gradient = [
            torch.stack(parts).mean(dim=0) for parts in zip(*(v.gradient for v in victims), strict=True)
        ]
        labels = recover_labels(averaged, seed)

        def start(attempt: int) -> list[torch.Tensor]:
            source = averaged.random(seed, "averaging", *first.owners, attempt)
            return [torch.rand(averaged.shape, generator=source).to(averaged.device)]

        def objective(values: list[torch.Tensor]) -> torch.Tensor:
            losses = [functional.cross_entropy(victim.module(values[0]), labels) for victim in victims]
            parts = [v.mismatch(v.gradients(loss)) for v, loss in zip(victims, losses, strict=True)]
            return torch.stack(parts).mean()

        best = minimise(start, objective, budget)
        return rebuilt(first, best, labels)


class SketchRounds(SeriesInversion):
    """Solves for the input of the first dense layer from what several sketches show of it."""

    name = "sketch-rounds"
    knowledge = "L1"
    summary = "a linear system over sketches"
    model = "mlp2:64"
    against = "sketch"
    needs_defence = True

    def invert(self, targets: Sequence[Target], _: Budget, seed: int) -> Reconstruction:
        started = time.process_time()
        first = targets[0]
        sketch = find_part(str(first.facts.settings.get("defence", "")), Sketch)
        if sketch is None:
            raise AttackDoesNotFit("sketch-rounds is made for the defence sketch; this view has another")
        if first.batch != 1:
            raise AttackDoesNotFit(
                f"sketch-rounds solves for one image, and {first.batch} stand behind the upload"
            )
        rows, shown = [], []
        for target in targets:
            victim = Victim(target)
            weight, bias = first_dense(victim)
            # The gradient was mapped back by the transposed sketch: S^T S is the size of each bucket.
            projected = (
                (bias @ weight / bias.square().sum().clamp_min(1e-30)).cpu().numpy().astype(np.float64)
            )
            agreed_seed = int(target.facts.settings["seed"])
            matrix = (
                CountSketch.draw(projected.size, sketch.ratio, agreed_seed, target.round, 0)
                .matrix()
                .astype(np.float64)
            )
            rows.append(matrix.T)
            shown.append((projected @ matrix) / np.square(matrix).sum(axis=0))
        solution = np.linalg.lstsq(np.concatenate(rows), np.concatenate(shown), rcond=None)[0]
        victim = Victim(first)
        labels = recover_labels(victim, seed).cpu().numpy()
        images = solution.reshape(victim.shape).astype(np.float32)
        return Reconstruction(
            first, images, labels, 0.0, len(targets), time.process_time() - started, "converged"
        )

    def invert_undefended(self, targets: Sequence[Target], budget: Budget, seed: int) -> Reconstruction:
        return Analytic().invert(targets[0], budget, seed)
