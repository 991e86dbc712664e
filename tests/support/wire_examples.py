"""Messages that use every field type, for tests and test vectors of the wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import AtMost, Length, MaxLength, Message, Stamp, Tensor, message, record


@record
@dataclass(frozen=True, slots=True)
class Share:
    """A nested record."""

    holder: PartyId
    index: Annotated[int, AtMost(65_536)]
    value: Annotated[bytes, Length(34)] | None


@message("example.empty")
@dataclass(frozen=True, slots=True)
class Empty(Message):
    """Nothing but a stamp."""

    stamp: Stamp


@message("example.round-keys")
@dataclass(frozen=True, slots=True)
class RoundKeys(Message):
    """A few bytes of exact length."""

    stamp: Stamp
    key: Annotated[bytes, Length(32)]
    signature: Annotated[bytes, Length(64)]


@message("example.boxes")
@dataclass(frozen=True, slots=True)
class Boxes(Message):
    """One small thing for each of many parties."""

    stamp: Stamp
    boxes: Mapping[PartyId, Annotated[bytes, MaxLength(512)]]


@message("example.masked-input")
@dataclass(frozen=True, slots=True)
class MaskedInput(Message):
    """One large vector."""

    stamp: Stamp
    vector: Tensor


@message("example.everything")
@dataclass(frozen=True, slots=True)
class Everything(Message):
    """Every field type at least once."""

    stamp: Stamp
    count: int
    bounded: Annotated[int, AtMost(7)]
    weight: float
    ready: bool
    note: str
    short_note: Annotated[str, MaxLength(8)]
    key: Annotated[bytes, Length(32)]
    blob: bytes
    leader: PartyId
    deputy: PartyId | None
    order: tuple[PartyId, ...]
    counts: Annotated[tuple[int, ...], MaxLength(4)]
    boxes: Mapping[PartyId, Annotated[bytes, MaxLength(512)]]
    share: Share
    spare: Share | None
    shares: Mapping[PartyId, tuple[Share, ...]]
    vector: Tensor
    terms: Mapping[PartyId, Tensor]
    parts: tuple[Tensor, ...]
    bias: Tensor | None
    pair: Annotated[Tensor, Length(2)]


@message("example.ratio")
@dataclass(frozen=True, slots=True)
class Ratio(Message):
    """One real number."""

    stamp: Stamp
    ratio: float


@message("example.interval")
@dataclass(frozen=True, slots=True)
class Interval(Message):
    """A rule over two fields."""

    stamp: Stamp
    first: int
    last: int

    def require_consistent(self) -> None:
        if self.first > self.last:
            raise ValueError("first comes after last")
