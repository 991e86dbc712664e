"""Membership by a network that learns, from those who are known, to tell members by what the model says of them.

It stops at its last epoch, not at its best one on those in question, which is told apart.

Implements specs/attacks.md, section 4.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from veilsum.roles.learning.seeds import derive_seed
from veilsum.roles.learning.task import Samples
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.membership.membership import (
    MembershipInference,
    Scores,
    Suspects,
    TrainingStart,
)
from veilsum.simulations.attacks.metrics import best_threshold, membership

_MOST_EPOCHS = 30


class AttackNetwork(MembershipInference):
    """A small network on outputs, label and loss."""

    name = "mia-network"
    summary = "a network learns to tell members"

    def score(
        self, exposed: Exposed, suspects: Suspects, start: TrainingStart, budget: Budget, seed: int
    ) -> Scores:
        groups = (suspects.known_members, suspects.known_others, suspects.members, suspects.others)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "membership network"))
            features = [_features(exposed, samples) for samples in groups]
            known = torch.cat(features[:2])
            truth = torch.cat([torch.ones(len(features[0])), torch.zeros(len(features[1]))])
            centre, spread = known.mean(dim=0), known.std(dim=0).clamp_min(1e-6)
            network = _network(known.shape[1])
            optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.1)
            best = 0.0
            for _ in range(min(budget.epochs, _MOST_EPOCHS)):
                for batch in torch.split(torch.randperm(len(known)), 64):
                    scores = network((known[batch] - centre) / spread).squeeze(1)
                    loss = functional.binary_cross_entropy_with_logits(scores, truth[batch])
                    optimiser.zero_grad()
                    torch.autograd.backward([loss])
                    optimiser.step()
                with torch.no_grad():
                    found = [
                        network((one - centre) / spread).squeeze(1).numpy().astype(np.float64)
                        for one in features
                    ]
                best = max(best, membership(found[2], found[3], 0.0).accuracy)
        return Scores(found[2], found[3], best_threshold(found[0], found[1]), best)


def _features(exposed: Exposed, samples: Samples) -> torch.Tensor:
    logits = torch.nan_to_num(exposed.logits(samples), nan=0.0, posinf=1e6, neginf=-1e6)
    labels = torch.from_numpy(samples.targets)
    one_hot = functional.one_hot(labels, exposed.classes).to(torch.float32)
    loss = functional.cross_entropy(logits, labels, reduction="none")[:, None]
    own = logits.gather(1, labels[:, None])
    return torch.cat([logits.sort(dim=1, descending=True).values, own, one_hot, loss], dim=1)


def _network(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (128, 64, 32):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))
