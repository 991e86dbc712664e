"""Membership inference: was this sample in the training set of this model?

The attacker knows half of the members and as many others (the usual, generous assumption), and is judged on the rest.
A score is higher for members. The threshold is chosen on what the attacker knows, never on what it is judged by.

Implements specs/attacks.md, section 4.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.task import Samples
from veilsum.roles.views.view import PublicFacts
from veilsum.simulations.attacks.attack import StagedAttack
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.metrics import Reals


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


@dataclass(frozen=True, eq=False)
class TrainingStart:
    """What everybody knows of the training: the agreed settings, and the model that it began with."""

    facts: PublicFacts
    model: Model


class MembershipInference(StagedAttack):
    """Tells members of the training set by the model that was trained on it."""

    model = "mlp3:128"
    needs_steps = True

    @abstractmethod
    def score(
        self, exposed: Exposed, suspects: Suspects, start: TrainingStart, budget: Budget, seed: int
    ) -> Scores:
        """How much each of those in question looks like a member."""


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
