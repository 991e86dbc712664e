"""What schemes need from server-side perturbation, without torch.

The algebra lives in protocol/perturbation and needs the traced model; machines only pass vectors around. So a
machine is given an object of one of these kinds, and calls it inside the jobs that it requests. A test gives it
twenty lines of numpy instead.

    server   perturbation = noise.perturb(model, round, random)     send perturbation.model and perturbation.public
    client   asked = noise.ask(...)                              only where `asks`: cross entropy with an offset
    server   perturbation.answer(asked.question, random)
    client   noise.compute(...)                                  all terms, one after the other, in one vector
    server   perturbation.recover(mean of the vectors)               the mean of the true payloads
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.randomness import RandomBytes
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


class Perturbation(Protocol):
    """The server's secret of one attempt, and what it made of the model."""

    @property
    def model(self) -> Model: ...

    @property
    def public(self) -> PublicPart: ...

    def require_question(self, question: ExchangeRequest) -> None:
        """Refuse a question that cannot be answered; light."""

    def answer(self, question: ExchangeRequest, random: RandomBytes) -> ExchangeReply: ...

    def recover(self, terms: Reals) -> RecoveredMean:
        """Raises `PrecisionLost` when nothing but rounding would come out."""


class ServerPerturbation(Protocol):
    """`terms` are the names and lengths of what clients upload, in order; `asks` whether they must ask first."""

    @property
    def terms(self) -> Mapping[str, int]: ...

    @property
    def asks(self) -> bool: ...

    def perturb(self, model: Model, round: int, random: RandomBytes) -> Perturbation:  # noqa: A002 - the protocol's own word
        """Draw the noise of one attempt."""

    def protect(self, model: Model, random: RandomBytes) -> Model:
        """A model with true predictions and other weights, for clients to keep."""

    def adapt(self, condition: float) -> None:
        """Let the size of the noise follow the condition number of the last recovery."""


class ClientPerturbation(Protocol):
    @property
    def terms(self) -> Mapping[str, int]: ...

    @property
    def asks(self) -> bool: ...

    def require_public(self, public: PublicPart) -> None:
        """Refuse noise that does not fit the agreed settings or our own model; light."""

    def ask(self, model: Model, public: PublicPart, round: int, random: RandomBytes) -> Asked:  # noqa: A002 - the protocol's own word
        """The first half of the local work, where the server must be asked."""

    def compute(
        self,
        model: Model,
        public: PublicPart,
        round: int,  # noqa: A002 - the protocol's own word
        asked: Asked | None,
        answer: ExchangeReply | None,
    ) -> LocalResult:
        """All terms end to end, in float32."""


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
