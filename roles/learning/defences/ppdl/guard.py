"""Selective sharing (Shokri and Shmatikov): only the largest entries of the change leave the party.

What is compared is the uploaded change of the whole round. Sparsifying every gradient step instead hardly
trains. Entries that are not shared stay as the round's model has them: 0 in a delta or gradient. With
`sigma` every shared entry also carries noise; the others carry none, so the choice itself stays visible.

Buffers, such as running statistics, are not selected from and always travel.

Implements specs/defences.md, section 6.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from veilsum.roles.learning.contract import FloatVector
from veilsum.roles.learning.defences.guard import ReleaseGuard, RoundWork
from veilsum.roles.learning.defences.private import Mechanism, PrivateKey

_ROUNDING = 1e-9  # 0.07 * 100 is a little more than 7


class PpdlGuard(ReleaseGuard):
    def __init__(self, share: float, sigma: float, mechanism: Mechanism, key: PrivateKey) -> None:
        self._share = share
        self._sigma, self._mechanism = sigma, mechanism
        self._key = key

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        size = self.parameters
        change = payload[:size].astype(np.float64) - unchanged[:size]
        shared = largest(change, self._share)
        released = unchanged.copy()
        released[size:] = payload[size:]
        released[shared] = payload[shared]
        if self._sigma:
            noise = self._key.stream("ppdl-noise", work.label).noise(self._mechanism, shared.size)
            released[shared] += (self._sigma * noise).astype(np.float32)
        return released


def largest(change: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.intp]:
    """The positions, in order, of the given share of entries with the largest absolute values, at least one.

    Among equal values the earlier position wins, so that the choice is a function of the change.
    """
    count = max(1, math.ceil(share * change.size - _ROUNDING))
    by_size = np.argsort(-np.abs(change), kind="stable")
    return np.sort(by_size[:count])
