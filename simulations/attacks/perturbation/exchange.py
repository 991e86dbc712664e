"""The offset from one exchange about the softmax, exactly: `cross_entropy.py` has the equations.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np

from veilsum.protocol.schemes.perturbed.messages import SoftmaxReply, SoftmaxRequest
from veilsum.roles.learning.task import Array
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.perturbation.cross_entropy import recover_gammas, recover_softmax
from veilsum.simulations.attacks.perturbation.kinds import PredictionRecovery
from veilsum.simulations.attacks.perturbation.predictions import Classes, PerturbedModel, Reals


class ExchangeReading(PredictionRecovery):
    """What the server's reply to one client gives away."""

    name = "noise-exchange"
    summary = "offset off by one exchange about softmax"

    def predict(self, view: View, inputs: Array) -> Classes:
        perturbed = PerturbedModel(view)
        outputs, alpha, softmax = exchanged_softmax(view, perturbed)
        gammas = recover_gammas(outputs, alpha, softmax, perturbed.public)
        offset = gammas[perturbed.public.partition] * perturbed.public.directions
        return perturbed.classes_without(offset, inputs)


def exchanged_softmax(view: View, perturbed: PerturbedModel) -> tuple[Reals, Reals, Reals]:
    """Perturbed outputs, alpha and the true softmax of the samples that the client asked about."""
    public = perturbed.public
    asked = {one.sender: one.message for one in view.messages if isinstance(one.message, SoftmaxRequest)}
    told = {one.receiver: one.message for one in view.messages if isinstance(one.message, SoftmaxReply)}
    members = [name for name in view.members if name in asked and name in told]
    if not members or public.exchange != "log":
        raise AttackDoesNotFit("the view holds no exchange about a softmax: play loss ce with scale+offset")
    request, reply = asked[members[0]].question, told[members[0]].answer
    shape = (len(request.alpha), len(public.partition))
    surrogate, direction = (part.reshape(shape).astype(np.float64) for part in (reply.first, reply.second))
    softmax = recover_softmax(surrogate, direction, public)
    return request.values.reshape(shape).astype(np.float64), request.alpha.astype(np.float64), softmax
