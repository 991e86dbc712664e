"""Membership inference with shadow models: some samples are easy for every model, member or not.

The attacker trains models of the same architecture on halves of the data it knows. The loss of a suspect is then
compared with its loss under models that never saw it: the score is how much better the attacked model does, in
standard deviations of the shadows (the offline form of the likelihood-ratio attack).

Implements specs/attacks.md, section 4.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from veilsum.roles.learning.seeds import derive_seed, generator
from veilsum.roles.learning.task import Samples
from veilsum.roles.learning.training.vectorize import to_vector
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.membership.membership import (
    MembershipInference,
    Scores,
    Suspects,
    TrainingStart,
)
from veilsum.simulations.attacks.metrics import Reals, best_threshold

_EPOCHS = 40


class ShadowModels(MembershipInference):
    """The loss of each suspect against its loss under models that never saw it."""

    name = "mia-shadow"
    summary = "losses against shadow models"
    heavy = True

    def score(
        self, exposed: Exposed, suspects: Suspects, start: TrainingStart, budget: Budget, seed: int
    ) -> Scores:
        pool = Samples.joined((suspects.known_members, suspects.known_others))
        groups = (suspects.known_members, suspects.known_others, suspects.members, suspects.others)
        observed = [_confidence(exposed, samples) for samples in groups]
        reference = [np.zeros((budget.shadows, len(samples))) for samples in groups]
        for number in range(budget.shadows):
            rng = generator(seed, "shadow", number)
            chosen = rng.permutation(len(pool)).astype(np.int64)[: len(pool) // 2]
            shadow = _train(start, pool.take(chosen), derive_seed(seed, "shadow training", number))
            for place, samples in enumerate(groups):
                reference[place][number] = _confidence(shadow, samples)
        scores = [
            (one - out.mean(axis=0)) / (out.std(axis=0) + 0.1)
            for one, out in zip(observed, reference, strict=True)
        ]
        return Scores(scores[2], scores[3], best_threshold(scores[0], scores[1]))


def _confidence(exposed: Exposed, samples: Samples) -> Reals:
    """The logit of the true class's probability, which is nearly normal over models."""
    losses = np.clip(exposed.losses(samples), 1e-9, 50.0)
    return -losses - np.log(-np.expm1(-losses))


def _train(start: TrainingStart, samples: Samples, seed: int) -> Exposed:
    shadow = Exposed(start.facts, start.model)
    inputs, labels = torch.from_numpy(samples.inputs).to(torch.float32), torch.from_numpy(samples.targets)
    source = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(shadow.module.parameters(), lr=0.1)
    shadow.module.train()
    for _ in range(_EPOCHS):
        for batch in torch.split(torch.randperm(len(labels), generator=source), 16):
            optimiser.zero_grad()
            torch.autograd.backward([functional.cross_entropy(shadow.module(inputs[batch]), labels[batch])])
            optimiser.step()
    shadow.module.eval()
    assert np.isfinite(to_vector(shadow.module)).all()
    return shadow
