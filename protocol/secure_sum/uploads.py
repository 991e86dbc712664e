"""The message that every masking scheme uploads: one ring vector that says nothing by itself."""

from __future__ import annotations

from dataclasses import dataclass

from veilsum.protocol.wire.messages import Message, Stamp, Tensor, message


@message("upload.masked")
@dataclass(frozen=True, slots=True)
class MaskedInput(Message):
    stamp: Stamp
    vector: Tensor
