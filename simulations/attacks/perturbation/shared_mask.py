"""Read a mask off a term that is known to be zero.

The publications let clients use one zero-sum mask for the gradient and for the other terms. The last layer's beta
is zero, so what is uploaded for it *is* the mask, and the server subtracts it from that client's gradient. Here
the last layer's beta is not uploaded at all and every term has its own mask.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.perturbation.algebra.layout import BETA, GRADIENT
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.carried import uploads_in
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys
from veilsum.simulations.attacks.perturbation.kinds import PerturbationAttack
from veilsum.simulations.attacks.perturbation.projection import Reals

Vector = NDArray[Any]


class SharedMask(PerturbationAttack):
    """Gradient less beta of each client, in clear if one mask covers both."""

    name = "noise-shared-mask"
    summary = "a mask read off two terms that share it"
    against = "bilateral"
    by = "server"
    needs_scheme = True

    def differences(self, view: View) -> Iterator[tuple[str, Reals]]:
        """Of each client in round 0, before the last layer."""
        keys = PerturbationKeys(view)
        encoding = config_of(view.facts).parameters(view.facts.dimension).encoding
        for client, _, carried in uploads_in(view, 0):
            words = np.array(carried.vector)
            difference = encoding.ring.signed(split_difference(keys, words, unmask))
            yield client, difference.astype(np.float64) / encoding.scale


def split_difference(
    keys: PerturbationKeys, upload: Vector, subtract: Callable[[Vector, Vector], Vector]
) -> Vector:
    """The body of the gradient term of an upload, less its beta term."""
    terms = keys.terms(0)
    if BETA not in terms:
        raise AttackDoesNotFit("only loss mse with scale+offset has a beta term: play that")
    gradient = upload[terms[GRADIENT]]
    body = np.concatenate([gradient[place] for place in keys.body])
    return subtract(body, upload[terms[BETA]][: len(body)])


def unmask(masked_gradient: Vector, masked_zero: Vector) -> Vector:
    """Server: one client's own gradient, from two uploads under one mask; real numbers, or words of a ring."""
    found: Vector = masked_gradient - masked_zero
    return found
