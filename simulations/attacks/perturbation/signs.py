"""Tell two models apart after perturbation: the sign of every hidden weight survives a positive factor.

This is the game of semantic security, and it is won with certainty by looking.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.model import Model
from veilsum.roles.views.view import PublicFacts, View
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.perturbation.kinds import PerturbationAttack

Vector = NDArray[np.floating[Any]]


class Recognition(PerturbationAttack):
    """Which of two models was perturbed."""

    name = "noise-signs"
    summary = "which of two models is perturbed, by signs"

    def recognise(self, view: View, candidates: Sequence[Model], round_: int) -> int:
        """Which candidate stands behind the perturbed model of a round."""
        perturbed = next(message.model for _, message in view.received(RoundOpened, round_))
        hidden = hidden_size(view.facts)
        return distinguish([one[:hidden] for one in candidates], perturbed[:hidden])


def hidden_size(facts: PublicFacts) -> int:
    """How many parameters come before the last layer, which alone has an offset."""
    module = Exposed(facts, np.zeros(facts.dimension, dtype=np.float32)).module
    return sum(one.numel() for one in module.get_submodule("features").parameters())


def distinguish(candidates: Sequence[Vector], perturbed: Vector) -> int:
    """Which candidate was perturbed, by agreement of signs over the given entries."""
    agreements = [np.mean(np.sign(candidate) == np.sign(perturbed)) for candidate in candidates]
    return int(np.argmax(agreements))
