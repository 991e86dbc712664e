"""The first decomposition in one attempt: shares given to and taken from neighbours (specs/protocol.md, section 4).

In share mode 'seeded' both ends stretch a key that they derive from the session's secrets; in share mode 'tensor' the
giver sends the stretched vector, as the paper does. After dropouts the keys that concern the dropped are revealed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from veilsum.protocol.agreed.parameters import ShareMode
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import Purpose
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import ParticipantContext, require_absent
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, share_key
from veilsum.protocol.schemes.ampc.messages import SeedsRevealed, ShareVector
from veilsum.protocol.secure_sum.verification import upload_length
from veilsum.protocol.wire.messages import Stamp


class ExchangedShares:
    def __init__(self, context: ParticipantContext, secrets: SessionSecrets, stamp: Stamp) -> None:
        """Keys and boxes are bound to `stamp`, which has the hash of the model that we really hold."""
        self._context = context
        self._secrets = secrets
        self._stamp = stamp
        self._neighbours = secrets.graph.neighbours_of(context.name)
        self._taken_vectors: dict[PartyId, RingVector] = {}
        self.as_tensors = context.parameters.share_mode is ShareMode.TENSOR

    @property
    def complete(self) -> bool:
        """Whether every share that enters our upload is here."""
        return not self.as_tensors or len(self._taken_vectors) == len(self._neighbours)

    def _given_key(self, taker: PartyId) -> Secret:
        return share_key(self._secrets.given[taker], self._stamp, self._context.name, taker)

    def _taken_key(self, giver: PartyId) -> Secret:
        return share_key(self._secrets.taken[giver], self._stamp, giver, self._context.name)

    def sealed_vectors(self) -> list[Event]:
        """Share mode 'tensor': the shares themselves. Heavy: runs away from the event loop."""
        parameters = self._context.parameters
        ring = parameters.encoding.ring
        messages: list[Event] = []
        for taker in self._neighbours:
            vector = ring.zeros(upload_length(parameters))
            apply_masks(ring, vector, add=[self._given_key(taker)])
            box = seal_box(self._box_secret(self._context.name, taker), vector.tobytes(), b"")
            messages.append(Send(taker, ShareVector(self._context.stamp, np.frombuffer(box, dtype=np.uint8))))
        return messages

    def take_vector(self, sender: PartyId, message: ShareVector) -> None:
        if not self.as_tensors or sender not in self._neighbours:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "a share vector that nobody asked for")
        require_absent(sender, self._taken_vectors)
        plain = open_box(self._box_secret(sender, self._context.name), message.box.tobytes(), b"")
        parameters, ring = self._context.parameters, self._context.parameters.encoding.ring
        if len(plain) != upload_length(parameters) * ring.word_bytes:
            raise Rejection(
                AbortReason.BAD_VECTOR, "the share has another length than the federation's vectors"
            )
        self._taken_vectors[sender] = np.frombuffer(plain, dtype=ring.dtype)

    def _box_secret(self, sender: PartyId, receiver: PartyId) -> Secret:
        return self._context.box_secret(Purpose.SEAL, self._stamp, sender, receiver, "share")

    def exchange(self, vector: RingVector, own: Iterable[Secret], biases: Iterable[Secret]) -> None:
        """Both decompositions and the self mask, fused into one pass over the vector, in place."""
        given = [self._given_key(taker) for taker in self._neighbours]
        taken = [] if self.as_tensors else [self._taken_key(giver) for giver in self._neighbours]
        ring = self._context.parameters.encoding.ring
        apply_masks(ring, vector, add=[*taken, *own], subtract=[*given, *biases])
        for share in self._taken_vectors.values():
            vector += share

    def reveal(self, dropped: Iterable[PartyId]) -> SeedsRevealed | None:
        """The keys of this attempt that were shared with dropped neighbours, in both directions."""
        gone = [name for name in self._neighbours if name in frozenset(dropped)]
        if not gone:
            return None
        parameters = self._context.parameters
        taken_sum = parameters.encoding.ring.zeros(upload_length(parameters) if self.as_tensors else 0)
        for name in gone if self.as_tensors else ():
            taken_sum += self._taken_vectors[name]
        given = {name: self._given_key(name).reveal() for name in gone}
        taken = {} if self.as_tensors else {name: self._taken_key(name).reveal() for name in gone}
        return SeedsRevealed(self._context.stamp, given, taken, taken_sum)
