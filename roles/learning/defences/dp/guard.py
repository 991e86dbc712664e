"""Noise, in the two ways the literature uses it.

* Without `clip`, as the papers on gradient inversion do: noise of scale sigma on every entry of the uploaded
  change (of the gradient, where that is the payload). One sample may move that change without bound, so this
  is a baseline for attacks and no differential privacy.
* With `clip`, properly: every step of training is private (private_sgd.py) and the account (accountant.py)
  says what all rounds together have spent. Everything after the steps only reads them.

Neither touches buffers: with `clip` a model that has some is refused.

Implements specs/defences.md, sections 4 and 5.
"""

from __future__ import annotations

import numpy as np

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.contract import FloatVector
from veilsum.roles.learning.defences.dp.accountant import PrivacyLoss, gaussian_loss, laplace_loss
from veilsum.roles.learning.defences.dp.private_sgd import Clipping, Plan, PrivateFitter, require_separable
from veilsum.roles.learning.defences.guard import Guard, Party, ReleaseGuard, RoundWork
from veilsum.roles.learning.defences.packing import pack, unpack
from veilsum.roles.learning.defences.private import Mechanism, PrivateKey


class NoiseGuard(ReleaseGuard):
    """Noise on the uploaded change, as the papers use it."""

    def __init__(self, sigma: float, mechanism: Mechanism, key: PrivateKey) -> None:
        self._sigma, self._mechanism = sigma, mechanism
        self._key = key

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        if not self._sigma:
            return payload
        drawn = self._key.stream("dp-noise", work.label).noise(self._mechanism, self.parameters)
        released = payload.copy()
        released[: self.parameters] += (self._sigma * drawn).astype(np.float32)
        return released


class PrivateStepsGuard(Guard):
    """Clipped and noisy steps, with an account of every upload that was made."""

    def __init__(
        self, clip: float, sigma: float, mechanism: Mechanism, delta: float, key: PrivateKey
    ) -> None:
        self._clipping = Clipping(clip, mechanism)
        self._sigma, self._delta = sigma, delta
        self._key = key
        self._released: set[bytes] = set()

    def attach(self, party: Party) -> None:
        require_separable(party)
        self._plan = Plan.of(party.options, party.samples)
        self.fitter = PrivateFitter(self._clipping, self._sigma, party.options, self._key)

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        self._released.add(work.label)
        return payload

    @property
    def spent(self) -> PrivacyLoss:
        """By the uploads made so far; the same upload made twice counts once."""
        return self.loss_after(len(self._released))

    def loss_after(self, uploads: int) -> PrivacyLoss:
        """By so many uploads of this party."""
        steps = uploads * self._plan.steps
        if self._clipping.mechanism == "laplace":
            return laplace_loss(self._plan.rate, self._sigma, steps)
        return gaussian_loss(self._plan.rate, self._sigma, steps, self._delta)

    def notes(self, rounds: int) -> list[str]:
        return [
            f"{self.loss_after(rounds)} for each sample after {rounds} rounds of {self._plan.steps} steps that "
            f"draw a sample with probability {self._plan.rate:.3g}"
        ]

    def account(self) -> list[str]:
        uploads = len(self._released)
        if not uploads:
            return []
        return [f"{self.spent} for each sample after {uploads} {'upload' if uploads == 1 else 'uploads'}"]

    def state(self) -> bytes:
        return pack(sorted(self._released))

    def restore(self, state: bytes) -> None:
        labels = unpack(state, "defence dp: the stored account")
        if not isinstance(labels, list) or not all(isinstance(label, bytes) for label in labels):
            raise LocalProtocolError("defence dp: the stored account is not a list of uploads")
        self._released |= set(labels)
