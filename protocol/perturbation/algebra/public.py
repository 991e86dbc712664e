"""The part of a round's noise that clients are told.

The published schemes send the directions but forget the partition, without which clients cannot contract
their terms. Both go into the digest that uploads echo, so that a client that used anything else is noticed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.settings import Exchange, Loss, Mode
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan

KEY_ID_BYTES = 16


@dataclass(frozen=True, eq=False)
class PublicPerturbation:
    """`partition[i]` is the group of output i, `directions` the public part of the offset, per output.

    `feature_weight` is the common weight of all features in alpha.
    """

    key_id: bytes
    plan_digest: bytes
    mode: Mode
    loss: Loss
    exchange: Exchange
    partition: NDArray[np.int64]
    directions: Reals
    feature_weight: float
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self._digest())

    @property
    def has_offset(self) -> bool:
        return self.mode == "scale+offset"

    @property
    def groups(self) -> int:
        return int(self.partition.max()) + 1 if self.has_offset else 0

    def grouped_directions(self) -> Reals:
        """One row per group: the directions on its outputs, zero elsewhere."""
        members = self.partition[None, :] == np.arange(self.groups)[:, None]
        return np.where(members, self.directions[None, :], 0.0)

    def require_fits(self, plan: PerturbationPlan) -> None:
        """A client's check of what the server sent, against its own model."""
        if self.plan_digest != plan.digest:
            raise Rejection(AbortReason.WRONG_MODEL, "the noise was drawn for another architecture")
        if len(self.key_id) != KEY_ID_BYTES:
            raise Rejection(
                AbortReason.BAD_VECTOR, f"a key id has {KEY_ID_BYTES} bytes, not {len(self.key_id)}"
            )
        if not self.has_offset:
            return
        expected = (plan.head.outputs,)
        if self.partition.shape != expected or self.directions.shape != expected:
            raise Rejection(AbortReason.BAD_VECTOR, f"partition and directions need {expected[0]} entries")
        if not np.array_equal(np.unique(self.partition), np.arange(self.groups)):
            raise Rejection(AbortReason.BAD_VECTOR, "the partition skips a group")
        if not (np.isfinite(self.directions).all() and np.isfinite(self.feature_weight)):
            raise Rejection(AbortReason.BAD_VECTOR, "directions are not finite")

    def _digest(self) -> bytes:
        parts = (
            domain_tag("perturbation-public"),
            self.plan_digest,
            *(name.encode() for name in (self.mode, self.loss, self.exchange)),
            self.partition.astype("<i8").tobytes(),
            self.directions.astype("<f8").tobytes(),
            np.float64(self.feature_weight).astype("<f8").tobytes(),
        )
        return hashlib.sha256(length_prefixed(*parts)).digest()
