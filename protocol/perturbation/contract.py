"""What client and server exchange about a perturbation, and what its owners keep of it, without torch.

The algebra lives beside this file and needs the traced model; schemes pass these values around. What they ask of
the roles that hold the model stands with them, in protocol/schemes/perturbed/equipment.py.

Implements specs/perturbation.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.public import KEY_ID_BYTES
from veilsum.protocol.wire.messages import Length, Tensor, record


@record
@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """What a client asks about its batch: outputs or blinded ratios, sample by sample, and alpha of each sample."""

    key_id: Annotated[bytes, Length(KEY_ID_BYTES)]
    values: Tensor
    alpha: Tensor


@record
@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """The server's three arrays, flat; see protocol/perturbation/algebra/exchange.py."""

    key_id: Annotated[bytes, Length(KEY_ID_BYTES)]
    first: Tensor
    second: Tensor
    third: Tensor


@dataclass(frozen=True)
class Asked:
    """A request, and what its client keeps to understand the reply."""

    request: ExchangeRequest
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
