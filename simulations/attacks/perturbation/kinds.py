"""What the attacks on server-side perturbation have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from veilsum.roles.learning.task import Array
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import Side, StagedAttack


class PerturbationAttack(StagedAttack):
    """One on the perturbation of a model by its server, by a curious client unless it says otherwise."""

    knowledge = "L1"
    model = "mlp2:64"
    against = "perturbed"
    by: ClassVar[Side] = "client"
    bundle = "perturbation"
    needs_perturbation = True


class PredictionRecovery(PerturbationAttack):
    """The predictions of the true model, from a perturbed one."""

    @abstractmethod
    def predict(self, view: View, inputs: Array) -> NDArray[np.int64]:
        """The class of each input."""
