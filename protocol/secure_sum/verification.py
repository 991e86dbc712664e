"""Verified sums: each party tags the words it hides, and all check the opened sum against the sum of the tags.

The tag is that of crypto/linear_tag.py, over all d + 2 words of an encoded update. Words are signed and a tag wants a
sum that does not wrap, so the largest absolute word of one upload, B, is added to each word before it is read:
0 <= word + B <= 2 B, and 2 n B < 2^b is the budget rule (specs/numbers.md, section 3). An encoder refuses what is
beyond the clip, whatever a defence did before, so no honest word leaves this range. The opened sum of K parties gets
K B.

The tag travels as eight more ring words of 16 bits each, under the masks and the recovery of all other words, so the
server sees no single tag. Their sums do not wrap for up to 65,537 parties in 32-bit words. They may be moved, together,
by multiples of 2^128 or by the few multiples of 5 that a check allows: the words of the sum are authentic, the sum of
the tags is not, and nothing may depend on it.

Vectors are read in blocks through one scratch buffer: no second vector is made.

Implements specs/protocol.md, section 6.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.crypto.linear_tag import TAG_BYTES, LinearTags, attempt_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.fixedpoint import FixedPoint, FloatVector
from veilsum.protocol.numbers.model import MODEL_WORD_BYTES
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.numbers.step_kinds import MOST_REMEMBERED
from veilsum.protocol.numbers.step_memory import MEMORY_WORD_BYTES
from veilsum.protocol.wire.messages import Stamp

TAG_WORDS = 8
SMALL_BYTES = 1024
"""What a vector may have besides its numbers: the names in a step memory, and the framing and the tag of a box."""

_LIMB_BITS = 8 * TAG_BYTES // TAG_WORDS
_LARGEST_LIMB = (1 << _LIMB_BITS) - 1
_BLOCK_BYTES = 1 << 18


class AttemptTags:
    """The tags of one attempt in the hands of a member of its session; the server never has this."""

    __slots__ = ("_encoding", "_places", "_tagged", "_tags", "key")

    def __init__(self, encoding: FixedPoint, key: Secret, members: Collection[PartyId]) -> None:
        """From the attempt key, which a member may have kept; `attempt_tags` derives it."""
        _require_fitting(encoding, len(members))
        self._encoding = encoding
        self._tags = LinearTags(key)
        self._places = {member: place for place, member in enumerate(sorted(members))}
        self._tagged: set[PartyId] = set()
        self.key = key

    def __repr__(self) -> str:
        return f"<tags of one attempt among {len(self._places)} members>"

    def upload_of(self, me: PartyId, values: FloatVector, samples: int) -> RingVector:
        """An update encoded, with its tag behind it: what is masked and sent."""
        encoding = self._encoding
        upload = np.empty(encoding.vector_length(len(values)) + TAG_WORDS, dtype=encoding.ring.dtype)
        encoding.encode_into(untagged(upload), values, samples)
        upload[-TAG_WORDS:] = self.limbs_for(me, untagged(upload))
        return upload

    def limbs_for(self, me: PartyId, vector: RingVector) -> RingVector:
        """The tag of an encoded update as ring words, to be masked and added like the update itself.

        One key covers one vector, ever: a second call for a party is refused, whatever the vector.
        """
        if me in self._tagged:
            raise LocalProtocolError(
                f"{me} tagged a vector in this attempt before: send that upload again, or begin another attempt"
            )
        tag = self._tags.tag(self._places_of([me])[0], self._lifted(vector, 1))
        self._tagged.add(me)
        return np.frombuffer(tag, dtype=f"<u{_LIMB_BITS // 8}").astype(self._encoding.ring.dtype)

    def require_sum(self, total: RingVector, limbs: RingVector, survivors: Collection[PartyId]) -> None:
        """Refuse an opened sum that is not the sum of what exactly the survivors tagged in this attempt."""
        places = self._places_of(survivors)
        limbs = self._encoding.ring.require(limbs, TAG_WORDS)
        tags = sum(int(limb) << (_LIMB_BITS * i) for i, limb in enumerate(limbs))
        self._tags.require_sum(tags, self._lifted(total, len(places)), total.nbytes, places)

    def _places_of(self, parties: Collection[PartyId]) -> list[int]:
        strangers = sorted(set(parties) - set(self._places))
        if strangers or not parties or len(set(parties)) != len(parties):
            detail = (
                f"{', '.join(strangers)} not in the session" if strangers else "nobody, or somebody twice"
            )
            raise Rejection(AbortReason.SURVIVOR_LIST, detail)
        return [self._places[party] for party in parties]

    def _lifted(self, vector: RingVector, parties: int) -> Iterator[RingVector]:
        """The words plus `parties` times the largest one, block by block, in one buffer that is used again."""
        ring = self._encoding.ring
        lift = ring.dtype.type(parties * self._encoding.largest_word)
        step = _BLOCK_BYTES // ring.word_bytes
        scratch = np.empty(min(step, len(vector)), dtype=ring.dtype)
        for start in range(0, len(vector), step):
            block = vector[start : start + step]
            yield np.add(block, lift, out=scratch[: len(block)])


def upload_length(parameters: Parameters) -> int:
    """The words of an upload whose sum is verified: those of the vector, and its tag."""
    return parameters.vector_length + TAG_WORDS


def most_vector_bytes(parameters: Parameters) -> int:
    """The vectors of one message where sums are verified: an upload, or a state of the chain with its step memory."""
    upload = parameters.encoding.ring.word_bytes * upload_length(parameters)
    state = (MODEL_WORD_BYTES + MEMORY_WORD_BYTES * MOST_REMEMBERED) * parameters.dimension
    return max(upload, state) + SMALL_BYTES


def untagged(words: RingVector) -> RingVector:
    """The words of an upload or of a sum without those of its tag."""
    return words[:-TAG_WORDS]


def attempt_tags(
    encoding: FixedPoint, group_key: Secret, stamp: Stamp, members: Collection[PartyId]
) -> AttemptTags:
    """The tags of the attempt that a stamp names, from the session's group key."""
    return AttemptTags(encoding, attempt_key(group_key, stamp.key_context("")), members)


def _require_fitting(encoding: FixedPoint, members: int) -> None:
    if members > encoding.max_parties:
        raise LocalProtocolError(
            f"the budget covers {encoding.max_parties} parties, the session has {members}"
        )
    most = ((1 << encoding.ring.bits) - 1) // _LARGEST_LIMB
    if members > most:
        raise ParameterError(
            [f"sums of tags wrap beyond {most} parties in {encoding.ring.bits}-bit words: use 64 bits"]
        )
