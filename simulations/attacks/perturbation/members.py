"""Membership inference by a client of perturbed training.

The publications report an attack at chance, because their attacker feeds itself the perturbed outputs. This one first
takes the offset off with its own labels, and the members of the other parties show as they do in the true model. After
training, every client also keeps a protected model with true predictions: it shows them as well, without any fit.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from veilsum.protocol.machines.session import Farewell
from veilsum.roles.learning.task import Samples
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.perturbation.fit import fitted_offset
from veilsum.simulations.attacks.perturbation.kinds import PerturbationAttack
from veilsum.simulations.attacks.perturbation.least_squares import remove_offset
from veilsum.simulations.attacks.perturbation.predictions import PerturbedModel, Reals


class WithoutOffset(Exposed):
    """A perturbed model in a client's hands, less an offset."""

    def __init__(self, view: View, offset: Reals) -> None:
        self._perturbed = PerturbedModel(view)
        self._offset = offset
        self.module = self._perturbed.module
        self.classes = view.facts.outputs

    def logits(self, samples: Samples) -> torch.Tensor:
        outputs, alpha = self._perturbed.outputs(samples.inputs)
        return torch.from_numpy(remove_offset(outputs, alpha, self._offset))


@dataclass(frozen=True, eq=False)
class Exposure:
    """One way in which a client comes by outputs that show members."""

    words: str
    knowledge: str
    exposed: Exposed
    cpu_s: float = 0.0


class PerturbedMembership(PerturbationAttack):
    """Members told by raw outputs, after the fit, and by the protected model."""

    name = "noise-membership"
    summary = "members told before and after the fit"
    model = "mlp3:128"

    def exposures(self, view: View) -> Iterator[Exposure]:
        """What the client can judge suspects by."""
        yield Exposure("raw outputs", "L0", WithoutOffset(view, np.zeros(view.facts.outputs)))
        started = time.process_time()
        fitted = WithoutOffset(view, fitted_offset(PerturbedModel(view)))
        yield Exposure("after the fit", "L1", fitted, time.process_time() - started)
        kept = [message.model for _, message in view.received(Farewell) if len(message.model)]
        if kept:
            yield Exposure("the protected model it keeps", "L0", Exposed(view.facts, kept[-1]))
