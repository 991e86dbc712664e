"""What travels about a perturbation, and what its owners keep of it, without torch.

The algebra lives beside this file and needs the traced model; schemes pass these values around. What they ask of
the roles that hold the model stands with them, in protocol/schemes/perturbed/equipment.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.wire.messages import Length, MaxLength, Tensor, record

Reals: TypeAlias = NDArray[np.float64]


@record
@dataclass(frozen=True, slots=True)
class PublicPart:
    """What clients are told about the noise of one attempt; see protocol/perturbation/algebra/public.py."""

    key_id: Annotated[bytes, Length(16)]
    plan_digest: Annotated[bytes, Length(32)]
    mode: Annotated[str, MaxLength(32)]
    loss: Annotated[str, MaxLength(32)]
    exchange: Annotated[str, MaxLength(32)]
    partition: Tensor
    directions: Tensor
    feature_weight: float

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


@record
@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """What a client asks about its batch: outputs or blinded ratios, sample by sample, and alpha of each sample."""

    key_id: Annotated[bytes, Length(16)]
    values: Tensor
    alpha: Tensor


@record
@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """The server's three arrays, flat; see protocol/perturbation/algebra/exchange.py."""

    key_id: Annotated[bytes, Length(16)]
    first: Tensor
    second: Tensor
    third: Tensor


@dataclass(frozen=True)
class Asked:
    """A question, and what its client keeps to understand the answer."""

    question: ExchangeRequest
    kept: Any = field(repr=False)


@dataclass(frozen=True)
class RecoveredMean:
    """The mean of the true payloads, the true training loss, and how well conditioned the recovery was."""

    mean: Reals = field(repr=False)
    loss: float
    condition: float
    warning: str | None = None


def require_numbers(vector: Tensor, kind: str, length: int, what: str) -> None:
    """Refuse anything but `length` finite floats of this kind."""
    if vector.dtype.str != kind or len(vector) != length:
        raise Rejection(
            AbortReason.BAD_VECTOR,
            f"{what}: {len(vector)} numbers of type {vector.dtype.str}, not {length} of {kind}",
        )
    if not np.isfinite(vector).all():
        raise Rejection(AbortReason.BAD_VECTOR, f"{what} has values that are not finite")


def _described(array: Tensor) -> tuple[bytes, bytes]:
    return array.dtype.str.encode(), array.tobytes()
