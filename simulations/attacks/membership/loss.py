"""Membership by the loss alone: a model does better on what it was trained on.

Implements specs/attacks.md, section 4.
"""

from __future__ import annotations

from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.membership.membership import (
    MembershipInference,
    Scores,
    Suspects,
    TrainingStart,
)
from veilsum.simulations.attacks.metrics import best_threshold


class LossThreshold(MembershipInference):
    """Needs neither a budget nor randomness."""

    name = "mia-loss"
    summary = "members have small losses"

    def score(
        self, exposed: Exposed, suspects: Suspects, start: TrainingStart, budget: Budget, seed: int
    ) -> Scores:
        return scores_by_loss(exposed, suspects)


def scores_by_loss(exposed: Exposed, suspects: Suspects) -> Scores:
    known, other = -exposed.losses(suspects.known_members), -exposed.losses(suspects.known_others)
    return Scores(
        -exposed.losses(suspects.members), -exposed.losses(suspects.others), best_threshold(known, other)
    )
