"""The envelope codec of one party: its machine's messages become signed envelopes, and received envelopes messages.

Everything a machine sends leaves here under the party's signature with a sequence number, and nothing reaches a machine
whose signature, roster, configuration and receiver are not right. Sessions, rounds and phases are the machine's own to
check. The upper half of a sequence number names this start of the party, so that numbers may begin at zero with each
and nothing has to be on disk. A message is taken only from the party that signed it: nobody carries another's.

Implements specs/wire-format.md, section 3.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.wire.codec import Buffer
from veilsum.protocol.wire.envelope import (
    Body,
    Envelope,
    Expectation,
    decode_envelope,
    open_envelope,
    sign_envelope,
)
from veilsum.protocol.wire.header import Header
from veilsum.protocol.wire.limits import DEFAULT_LIMITS, Limits
from veilsum.protocol.wire.messages import Message
from veilsum.protocol.wire.replay import START_SHIFT, ReplayWindow

MOST_FRONT_BYTES = 1024
"""Header, signature and padding: nothing in a header is longer than 64 bytes."""


class EnvelopeCodec:
    """`start` tells this start of the party from all others: 32 random bits, or in a simulation its number."""

    def __init__(
        self,
        me: Identity,
        roster: Roster,
        config_hash: bytes,
        start: int = 0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._me = me
        self._roster = roster
        self._config_hash = config_hash
        self._first = start << START_SHIFT
        self._limits = limits
        self._sent: Counter[PartyId] = Counter()
        self._replays = ReplayWindow()

    @property
    def largest_envelope(self) -> int:
        """No message for or of this party has more bytes when it travels."""
        return self._limits.max_message_bytes + MOST_FRONT_BYTES

    def seal(self, receivers: Sequence[PartyId], message: Message, phase: str) -> list[Envelope]:
        """One envelope for each receiver; the message itself is encoded and hashed once."""
        body = Body.of(message, self._limits)
        return [self._envelope(receiver, message, body, phase) for receiver in receivers]

    def _envelope(self, receiver: PartyId, message: Message, body: Body, phase: str) -> Envelope:
        header = Header.of(
            message,
            phase=phase,
            sender=self._me.name,
            receiver=receiver,
            sequence=self._first + self._sent[receiver],
            roster_hash=self._roster.digest,
            config_hash=self._config_hash,
        )
        self._sent[receiver] += 1
        return sign_envelope(header, body, self._me.signing)

    def open(self, carrier: str, data: Buffer) -> tuple[PartyId, Message]:
        """The verified sender and message; `Rejection` before the sender is proven, else blame with its name.

        `carrier` is the party from whose line the bytes came.
        """
        envelope = decode_envelope(data, self._limits)
        if envelope.header.sender != carrier:
            raise Rejection(
                AbortReason.WRONG_SENDER,
                f"{carrier} carries a message in the name of {envelope.header.sender}",
            )
        return self.open_envelope(envelope)

    def open_envelope(self, envelope: Envelope) -> tuple[PartyId, Message]:
        header = envelope.header
        identity = self._roster.identity(header.sender)
        expected = Expectation(
            receiver=self._me.name,
            session=header.session,
            roster_hash=self._roster.digest,
            config_hash=self._config_hash,
        )
        message = open_envelope(envelope, identity.verify_key, expected, self._limits)
        if identity.name == self._me.name:
            raise RemoteProtocolError(identity.name, AbortReason.REPLAY, "our own message came back")
        self._replays.admit(identity.name, header.sequence, envelope.digest)
        return identity.name, message


def grouped_sends(events: Iterable[Event]) -> Iterator[Event | tuple[list[PartyId], Message]]:
    """Events in order, with runs of sends of one message folded into (receivers, message)."""
    for _, run in itertools.groupby(events, key=lambda e: id(e.message) if isinstance(e, Send) else 0):
        members = list(run)
        if isinstance(members[0], Send):
            yield [event.receiver for event in members if isinstance(event, Send)], members[0].message
        else:
            yield from members
