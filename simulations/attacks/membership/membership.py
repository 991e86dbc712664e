"""Membership inference: was this sample in the training set of this model?

The attacker knows half of the members and as many others (the usual, generous assumption), and is judged on the rest.
A score is higher for members. The threshold is chosen on what the attacker knows, never on what it is judged by;
the attack network stops at its last epoch, not at its best one on the test, which is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.learning.seeds import derive_seed
from veilsum.roles.learning.task import Array, Samples
from veilsum.roles.learning.training.vectorize import load_vector
from veilsum.roles.views.view import PublicFacts
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.metrics import Reals, best_threshold, membership

_PIXEL_MAX = 255
_MOST_EPOCHS = 30


@dataclass(frozen=True, eq=False)
class Suspects:
    """Who is known to be a member or not, and who is in question."""

    known_members: Samples
    known_others: Samples
    members: Samples
    others: Samples


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of those in question, and the threshold that the attacker chose."""

    members: Reals
    others: Reals
    threshold: float
    best_epoch_accuracy: float | None = None
    """The balanced accuracy at the epoch that is best on those in question: optimistic, to quote a paper by."""


class Exposed:
    """A model in the attacker's hands, and what it says about samples."""

    def __init__(self, facts: PublicFacts, model: Model) -> None:
        name = config_of(facts).model
        assert name is not None
        self.module: nn.Module = build_model(name, facts.input_shape, facts.outputs, seed=0)
        load_vector(self.module, model)
        self.module.eval()
        self.classes = facts.outputs

    def logits(self, samples: Samples) -> torch.Tensor:
        with torch.no_grad():
            outputs: torch.Tensor = self.module(as_pixels(samples.inputs))
        return outputs

    def losses(self, samples: Samples) -> Reals:
        labels = torch.from_numpy(samples.targets)
        found = functional.cross_entropy(self.logits(samples), labels, reduction="none")
        numbers: Reals = np.nan_to_num(found.numpy().astype(np.float64), nan=1e9, posinf=1e9)
        return numbers


def as_pixels(inputs: Array) -> torch.Tensor:
    """Inputs as the model sees them."""
    found = torch.from_numpy(inputs)
    return found.to(torch.float32) / _PIXEL_MAX if found.dtype == torch.uint8 else found


def loss_threshold(exposed: Exposed, suspects: Suspects, epochs: int, seed: int) -> Scores:  # noqa: ARG001 - one signature for all
    """Members have small losses."""
    known, other = -exposed.losses(suspects.known_members), -exposed.losses(suspects.known_others)
    return Scores(
        -exposed.losses(suspects.members), -exposed.losses(suspects.others), best_threshold(known, other)
    )


def attack_network(exposed: Exposed, suspects: Suspects, epochs: int, seed: int) -> Scores:
    """A small network on outputs, label and loss learns to tell members, from those that are known."""
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
        for _ in range(min(epochs, _MOST_EPOCHS)):
            for batch in torch.split(torch.randperm(len(known)), 64):
                scores = network((known[batch] - centre) / spread).squeeze(1)
                loss = functional.binary_cross_entropy_with_logits(scores, truth[batch])
                optimiser.zero_grad()
                torch.autograd.backward([loss])
                optimiser.step()
            with torch.no_grad():
                found = [
                    network((one - centre) / spread).squeeze(1).numpy().astype(np.float64) for one in features
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


def split_suspects(members: Samples, others: Samples, rng: np.random.Generator) -> Suspects:
    """Half of each is known to the attacker."""
    halves: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for samples in (members, others):
        order = rng.permutation(len(samples)).astype(np.int64)
        halves.append((order[: len(order) // 2], order[len(order) // 2 :]))
    (known_in, asked_in), (known_out, asked_out) = halves
    return Suspects(
        members.take(known_in), others.take(known_out), members.take(asked_in), others.take(asked_out)
    )
