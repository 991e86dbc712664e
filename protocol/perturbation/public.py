"""The part of an attempt's perturbation that clients are told: a record of the wire that the algebra works with.

The published schemes send the directions but forget the partition, without which clients cannot contract
their terms. Both go into the digest that uploads echo, so that a client that used anything else is noticed.

A record has its declared types and sizes from birth. What depends on the model, and what the numbers mean, is the
receiver's to judge (`require_fits`), who then blames the sender. No torch here: messages hold this record.

Implements specs/perturbation.md, section 4.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, get_args

import numpy as np

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.settings import Exchange, Loss, Mode
from veilsum.protocol.wire.messages import Length, MaxLength, Tensor, record

if TYPE_CHECKING:
    from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan

KEY_ID_BYTES: Final = 16
PARTITION_TYPE: Final = "<u4"
DIRECTIONS_TYPE: Final = "<f8"


@record
@dataclass(frozen=True, slots=True)
class PublicPerturbation:
    """`partition[i]` is the group of output i, `directions` the public part of the offset, per output.

    `feature_weight` is the common weight of all features in alpha.
    """

    key_id: Annotated[bytes, Length(KEY_ID_BYTES)]
    plan_digest: Annotated[bytes, Length(32)]
    mode: Annotated[str, MaxLength(32)]
    loss: Annotated[str, MaxLength(32)]
    exchange: Annotated[str, MaxLength(32)]
    partition: Tensor
    directions: Tensor
    feature_weight: float

    @property
    def has_offset(self) -> bool:
        return self.mode == "scale+offset"

    @property
    def groups(self) -> int:
        return int(self.partition.max()) + 1 if self.has_offset else 0

    @property
    def digest(self) -> bytes:
        """Over everything: parties with the same digest compute the same terms."""
        framed = length_prefixed(
            domain_tag("public-noise"),
            self.key_id,
            self.plan_digest,
            *(text.encode() for text in (self.mode, self.loss, self.exchange)),
            *(part for array in (self.partition, self.directions) for part in _described(array)),
            np.float64(self.feature_weight).astype("<f8").tobytes(),
        )
        return hashlib.sha256(framed).digest()

    def grouped_directions(self) -> Reals:
        """One row per group: the directions on its outputs, zero elsewhere."""
        members = self.partition[None, :] == np.arange(self.groups)[:, None]
        return np.where(members, self.directions[None, :], 0.0)

    def require_used(self, key_id: bytes, digest: bytes) -> None:
        """The server's check of terms: they were computed with this key, and with all that clients were told."""
        if key_id != self.key_id:
            raise Rejection(AbortReason.WRONG_ROUND, "terms were computed with a stale key")
        if digest != self.digest:
            raise Rejection(
                AbortReason.WRONG_CONFIG, "terms were computed with another partition of the outputs"
            )

    def require_fits(self, plan: PerturbationPlan) -> None:
        """A client's check of what the server sent, against its own model."""
        self._require_known_kind()
        if self.partition.dtype.str != PARTITION_TYPE or self.directions.dtype.str != DIRECTIONS_TYPE:
            raise Rejection(
                AbortReason.BAD_VECTOR,
                f"partition and directions must be {PARTITION_TYPE} and {DIRECTIONS_TYPE}, "
                f"not {self.partition.dtype.str} and {self.directions.dtype.str}",
            )
        if self.plan_digest != plan.digest:
            raise Rejection(AbortReason.WRONG_MODEL, "the perturbation was drawn for another architecture")
        if self.has_offset:
            self._require_offset_of(plan.head.outputs)

    def _require_known_kind(self) -> None:
        for text, known in ((self.mode, Mode), (self.loss, Loss), (self.exchange, Exchange)):
            if text not in get_args(known):
                raise Rejection(
                    AbortReason.WRONG_CONFIG, f"{text!r} is not one of {', '.join(get_args(known))}"
                )

    def _require_offset_of(self, outputs: int) -> None:
        if self.partition.shape != (outputs,) or self.directions.shape != (outputs,):
            raise Rejection(AbortReason.BAD_VECTOR, f"partition and directions need {outputs} entries")
        # Not `groups`, which a single large entry would make as long as it likes.
        found = np.unique(self.partition)
        if not np.array_equal(found, np.arange(len(found))):
            raise Rejection(AbortReason.BAD_VECTOR, "the partition skips a group")
        if not np.isfinite(self.directions).all():
            raise Rejection(AbortReason.BAD_VECTOR, "directions are not finite")


def _described(array: Tensor) -> tuple[bytes, bytes]:
    return array.dtype.str.encode(), array.tobytes()
