"""Servers that show another sum than they opened: alone, to one party, and with a participant's help.

Alone, a server cannot make the tag of another sum: every member sees that. With the group key of one member it can.
Poly1305 under one key is a function of the words plus a pad; the sum of all tags of X plus tag(X') - tag(X), both made
by the participant in its own place, is therefore accepted with X' exactly if it is with X. That is the limit which
specs/threat-model.md prints: whoever runs the server must run no participant.

Implements specs/lies.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, add_biases_back
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.group_key import GroupKey
from veilsum.protocol.secure_sum.verification import TAG_WORDS, attempt_tags
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.lies.lie import Lie
from veilsum.simulations.lies.uploads import PARTICIPANT

_LIMB_BITS = 16
_COORDINATE = 0


def shifted(encoding: FixedPoint, words: RingVector) -> RingVector:
    """A sum with a hundredth of the clip more in one coordinate, for each unit of weight that one party may have."""
    moved = np.array(words)
    moved[_COORDINATE] += moved.dtype.type(_step(encoding))
    return moved


def _step(encoding: FixedPoint) -> int:
    return max(1, round(encoding.clip * encoding.scale / 100))


def with_words(message: SumOpened | Aggregate, words: RingVector) -> Message:
    if isinstance(message, SumOpened):
        return replace(message, words=words)
    return replace(message, vector=words)


def words_of(message: SumOpened | Aggregate) -> RingVector:
    return message.words if isinstance(message, SumOpened) else message.vector


class ShiftedSum(Lie):
    name = "server:shift"
    does = "adds to the sum that it opened, and shows everyone the same"
    noticed_as = "SUM_FALSIFIED at everyone; nothing is committed"

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if not isinstance(message, SumOpened | Aggregate):
            return message
        return with_words(message, shifted(self.liars.parameters.encoding, words_of(message)))


class ShiftedAsOpened(FixedPoint):
    """The encoding of a server that changes a sum as it decodes it: what it steps from and shows is the changed one."""

    def decode_mean(self, total: RingVector, parties: int) -> tuple[NDArray[np.float64], float]:
        total[_COORDINATE] += total.dtype.type(_step(self))
        return super().decode_mean(total, parties)


class ShiftedTogether(Lie):
    name = "server+client:shift"
    does = "adds to the sum that the server opened, under the tag that a participant makes for it with the group key"
    noticed_as = (
        "nobody notices: this is the printed limit, a server that colludes with one participant falsifies"
    )
    by = (SERVER, PARTICIPANT)
    succeeds = True
    encodings: ClassVar[Mapping[str, type[FixedPoint]]] = {SERVER: ShiftedAsOpened}

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        encoding = self.liars.parameters.encoding
        match message:
            case SumOpened() if sender == SERVER:
                honest = np.array(message.words)
                honest[_COORDINATE] -= honest.dtype.type(_step(encoding))
                return with_words(message, self._retagged(honest, message.survivors, honest))
            case Aggregate() if sender == SERVER:
                honest = np.array(message.vector)
                return with_words(message, self._retagged(honest, message.survivors, self._opened(message)))
            case _:
                return message

    def _opened(self, message: Aggregate) -> RingVector:
        """The sum as peers see it: the participant knows what hides it from the server."""
        parameters, secrets = self.liars.parameters, self._secrets
        assert isinstance(secrets, SessionSecrets)
        words = np.array(message.vector)
        ring = parameters.encoding.ring
        add_biases_back(ring, words, secrets, self._stamp, message.survivors, parameters.bias)
        return words

    def _retagged(self, shown: RingVector, survivors: tuple[PartyId, ...], opened: RingVector) -> RingVector:
        """What to show: all words as they are hidden, plus what changes in the sum and in the sum of its tags."""
        encoding = self.liars.parameters.encoding
        total, limbs = opened[:-TAG_WORDS], opened[-TAG_WORDS:]
        moved = shifted(encoding, total)
        tags = _number(limbs) + self._tag(moved, len(survivors)) - self._tag(total, len(survivors))
        changed = np.concatenate([moved, _limbs(tags, limbs)])
        changed -= opened
        changed += shown
        return changed

    def _tag(self, total: RingVector, parties: int) -> int:
        """The tag that the participant makes of a sum, read as a check reads sums of so many parties."""
        encoding, machine = self.liars.parameters.encoding, self.liars.participant()
        assert machine.session is not None
        tags = attempt_tags(encoding, self._group.key, self._stamp, machine.session.members)
        lifted = total + total.dtype.type((parties - 1) * encoding.largest_word)
        return _number(tags.limbs_for(self.liars.names[-1], lifted))

    @property
    def _secrets(self) -> object:
        return self.liars.participant().secrets

    @property
    def _group(self) -> GroupKey:
        secrets = self._secrets
        found = secrets.group if isinstance(secrets, SessionSecrets) else secrets
        assert isinstance(found, GroupKey)
        return found

    @property
    def _stamp(self) -> Stamp:
        """What tags are bound to: the state that the server names or, where it knows none, the model."""
        machine = self.liars.participant()
        assert machine.machine is not None
        stamp = machine.machine.stamp
        if stamp.model_hash:
            return stamp
        assert machine.model is not None
        return replace(stamp, model_hash=hash_model(machine.model))


def _number(limbs: RingVector) -> int:
    return sum(int(limb) << (_LIMB_BITS * place) for place, limb in enumerate(limbs))


def _limbs(tags: int, like: RingVector) -> RingVector:
    """A sum of tags as ring words; beyond 128 bits it counts for nothing."""
    mask = (1 << _LIMB_BITS) - 1
    return np.array([(tags >> (_LIMB_BITS * place)) & mask for place in range(TAG_WORDS)], dtype=like.dtype)
