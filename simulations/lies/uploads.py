"""Participants that give the sum what no honest party can give it.

A liar holds the group key, as every member does, so the tag of what it encodes is right: the sum is exactly what its
parties tagged. What is left to see is that no honest parties can have such a sum. The masks hide whose upload it was,
so nobody is named, and the organiser goes on with a checkpoint.

Implements specs/lies.md, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.fixedpoint import FixedPoint, FloatVector
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.lies.lie import Lie

PARTICIPANT = "client"
SPOILED_SUM = "CHECK_FAILED at all who see the sum; nothing is committed and nobody named"


class CountedTwice(FixedPoint):
    """Counts its party as two."""

    def encode_into(self, words: RingVector, values: FloatVector, samples: int) -> None:
        super().encode_into(words, values, samples)
        self.ring.signed(words)[-1] += 1


class BeyondTheClip(FixedPoint):
    """Says more in its first coordinate than all parties together may, and less than would wrap."""

    def encode_into(self, words: RingVector, values: FloatVector, samples: int) -> None:
        super().encode_into(words, values, samples)
        self.ring.signed(words)[0] = (self.max_parties * self.largest_word + self.ring.signed_limit) // 2


class BelowNothing(FixedPoint):
    """Weighs as little as all others together weigh at most, and less than nothing."""

    def encode_into(self, words: RingVector, values: FloatVector, samples: int) -> None:
        super().encode_into(words, values, samples)
        self.ring.signed(words)[-2] = -round(self.max_parties * self.scale)


class FalseCount(Lie):
    name = "client:count"
    does = "adds one to the coordinate that counts the parties of a sum, and tags that"
    noticed_as = SPOILED_SUM
    by = (PARTICIPANT,)
    encodings: ClassVar[Mapping[str, type[FixedPoint]]] = {PARTICIPANT: CountedTwice}


class FalseRange(Lie):
    name = "client:range"
    does = "puts a number far beyond the clip into its update, and tags that"
    noticed_as = SPOILED_SUM
    by = (PARTICIPANT,)
    encodings: ClassVar[Mapping[str, type[FixedPoint]]] = {PARTICIPANT: BeyondTheClip}


class FalseWeight(Lie):
    name = "client:weight"
    does = "gives its update a negative weight, and tags that"
    noticed_as = (
        "CHECK_FAILED at all who see the sum; nothing is committed, nobody named; SUM_FALSIFIED where more parties "
        "than the clip overflow the word"
    )
    by = (PARTICIPANT,)
    encodings: ClassVar[Mapping[str, type[FixedPoint]]] = {PARTICIPANT: BelowNothing}


class FalseTag(Lie):
    name = "client:tag"
    does = "gives its update a tag that is not its own"
    noticed_as = "SUM_FALSIFIED at all who see the sum; nothing is committed and nobody named"
    by = (PARTICIPANT,)

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        """The tag is the end of an upload, and masks are added: one more under the mask is one more in the sum."""
        if not isinstance(message, MaskedInput):
            return message
        vector = np.array(message.vector)
        vector[-1] += vector.dtype.type(1)
        return replace(message, vector=vector)
