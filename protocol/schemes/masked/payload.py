"""What a masked round is about, handed to it: an update and its mean, or the terms of a perturbed model.

The round itself (client.py and server.py beside this file) masks one ring vector and opens one sum of them. How long
that vector is, which parts of it have mask streams of their own, what mask keys are bound to and how the mean becomes
a model is said by one of these objects.

Implements specs/protocol.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.machines.attempt import ParticipantContext, ServerContext
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.secure_sum.masking import WHOLE_VECTOR
from veilsum.protocol.secure_sum.verification import TAG_WORDS, AttemptTags, upload_length
from veilsum.protocol.wire.messages import Stamp


class Masking(Protocol):
    """What both sides must agree on, or their masks do not cancel."""

    @property
    def mask_terms(self) -> Mapping[str, slice]:
        """The parts of an upload that have mask streams of their own, by the name that sets those apart."""

    def bound(self, stamp: Stamp) -> Stamp:
        """What mask keys are derived under."""


class MaskedPayload(Masking, Protocol):
    """A client's side."""

    def encode(self, trained: LocalResult) -> RingVector: ...


class MaskedMean(Masking, Protocol):
    """The server's side: `length` of an upload, `tag_words` of them a tag, and the model that the mean makes. Heavy."""

    @property
    def length(self) -> int: ...

    @property
    def tag_words(self) -> int: ...

    def step(self, mean: NDArray[np.float64]) -> SteppedModel: ...


@dataclass(frozen=True)
class SteppedModel:
    """The model after a round, and the training loss where the payload tells it.

    `extra` is what the payload found besides: opaque here, and read by the machine that handed the payload over.
    """

    model: Model = field(repr=False)
    model_hash: bytes
    loss: float | None = None
    extra: object | None = field(default=None, repr=False)


@dataclass(frozen=True)
class OpenedSum:
    """What the heavy end of a round gives: the sum, and the model made from it."""

    stepped: SteppedModel
    total: RingVector = field(repr=False)


class WholeUpdate:
    """`masked`: the update as it is with its tag behind it, under one stream of each key."""

    mask_terms: Mapping[str, slice] = WHOLE_VECTOR

    def __init__(self, context: ParticipantContext, tags: AttemptTags) -> None:
        self._me = context.name
        self._tags = tags

    def bound(self, stamp: Stamp) -> Stamp:
        return stamp

    def encode(self, trained: LocalResult) -> RingVector:
        return self._tags.upload_of(self._me, trained.payload, trained.samples)


class WholeMean:
    """`masked`: the mean of updates makes the next state of the chain, which is the payload's `extra`."""

    tag_words = TAG_WORDS
    mask_terms: Mapping[str, slice] = WHOLE_VECTOR

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.length = upload_length(context.parameters)

    def bound(self, stamp: Stamp) -> Stamp:
        return stamp

    def step(self, mean: NDArray[np.float64]) -> SteppedModel:
        after = self._context.point.next_state(mean)
        return SteppedModel(after.model, after.hash, extra=after)
