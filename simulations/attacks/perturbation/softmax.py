"""The curious server in the cross-entropy exchange: it is told, or can solve for, the softmax of every sample.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veilsum.protocol.schemes.perturbed.messages import SoftmaxRequest
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.perturbation.cross_entropy import Reals, softmax_from_ratios
from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys
from veilsum.simulations.attacks.perturbation.kinds import PerturbationAttack


class AskedSoftmax(PerturbationAttack):
    """The true softmax of every sample that each client asked about."""

    name = "noise-softmax"
    summary = "a server reads each sample's softmax"
    by = "server"

    def read(self, view: View) -> Iterator[tuple[str, Reals]]:
        """Of each client, one row of probabilities per sample."""
        keys = PerturbationKeys(view)
        found = False
        for client, message in view.received(SoftmaxRequest):
            found = True
            key, request = keys.of_round(message.stamp.round, message.stamp.attempt), message.question
            samples, classes = len(request.alpha), len(key.public.partition)
            alpha = np.asarray(request.alpha, dtype=np.float64)
            if key.public.exchange == "log":
                scores = request.values.reshape(samples, classes) - alpha[:, None] * key.offset
                powers = np.exp(scores - scores.max(axis=1, keepdims=True))
                yield client, powers / powers.sum(axis=1, keepdims=True)
            else:
                ratios = np.asarray(request.values.reshape(samples, classes, classes), dtype=np.float64)
                yield client, softmax_from_ratios(ratios, alpha, key.offset)
        if not found:
            raise AttackDoesNotFit(
                "the view holds no request about a softmax: play loss ce with scale+offset"
            )
