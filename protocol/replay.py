"""Every message once: the receiver's memory of sequence numbers.

Transports repeat messages, and brokers may be told to. A sender numbers what it sends to one receiver; the
receiver remembers, per sender, the digests of the last `window` numbers. Same number and same bytes is a
duplicate and is dropped. Same number and other bytes, both signed, is equivocation: proof against the sender.
A number that has left the window can no longer be told apart and is refused as a replay; it costs nothing,
because the transport acknowledges what it delivered and resends only what is recent.

Admit a message only after its signature has been verified, otherwise anyone could use up the numbers of an
honest party. A jump to a huge number harms only the sender that makes it. Memory is bounded by the
number of roster members times the window.

A guard serves one life of a process, over all its sessions: numbers go on growing from session to session. What
must survive a restart is only the highest number seen of each sender. Roles keep it with the checkpoint and refuse
everything up to it; a process without it would accept every recorded message again. `snapshot` and `restore`
are for drivers that carry on in the middle of a window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from veilsum.protocol.domains import DIGEST_BYTES
from veilsum.protocol.errors import AbortReason, ParameterError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.messages import AtMost, Length, MaxLength
from veilsum.protocol.records import record

DEFAULT_WINDOW: Final = 256
LARGEST_WINDOW: Final = 4096


class Duplicate(Rejection):
    """The same bytes under the same number again: drop them, nobody erred."""

    def __init__(self, sender: PartyId, sequence: int) -> None:
        super().__init__(AbortReason.REPLAY, f"message {sequence} of {sender} was received before")


@record
@dataclass(frozen=True, slots=True)
class SeenMessage:
    sequence: int
    digest: Annotated[bytes, Length(DIGEST_BYTES)]


@record
@dataclass(frozen=True, slots=True)
class ReplaySnapshot:
    """All that a guard remembers; `encode_record` and `decode_record` turn it into bytes and back."""

    window: Annotated[int, AtMost(LARGEST_WINDOW)]
    seen: Mapping[PartyId, Annotated[tuple[SeenMessage, ...], MaxLength(LARGEST_WINDOW, least=1)]]

    def require_consistent(self) -> None:
        if self.window < 1:
            raise ValueError("a window holds at least one message")
        for party, messages in self.seen.items():
            numbers = [message.sequence for message in messages]
            if numbers != sorted(set(numbers)) or numbers[-1] - numbers[0] >= self.window:
                raise ValueError(f"numbers of {party} do not increase within one window")


class ReplayGuard:
    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        if not 1 <= window <= LARGEST_WINDOW:
            raise ParameterError([f"replay window must be between 1 and {LARGEST_WINDOW}, not {window}"])
        self.window = window
        self._seen: dict[PartyId, dict[int, bytes]] = {}

    def admit(self, sender: PartyId, sequence: int, digest: bytes) -> None:
        """Record a verified message, or raise and remember nothing new."""
        known = self._seen.get(sender, {})
        earlier = known.get(sequence)
        if earlier == digest:
            raise Duplicate(sender, sequence)
        if earlier is not None:
            raise RemoteProtocolError(
                sender,
                AbortReason.EQUIVOCATION,
                f"message {sequence} has digests {earlier.hex()[:16]} and {digest.hex()[:16]}",
            )
        floor = max(known, default=sequence) - self.window
        if sequence <= floor:
            raise Rejection(AbortReason.REPLAY, f"message {sequence} of {sender} is older than the window")
        self._record(sender, SeenMessage(sequence, digest))

    def _record(self, sender: PartyId, message: SeenMessage) -> None:
        known = self._seen.setdefault(sender, {})
        if known and message.sequence > max(known):
            floor = message.sequence - self.window
            for forgotten in [number for number in known if number <= floor]:
                del known[forgotten]
        known[message.sequence] = message.digest

    def forget(self, sender: PartyId) -> None:
        """Drop what is known of a party that left the roster."""
        self._seen.pop(sender, None)

    def snapshot(self) -> ReplaySnapshot:
        return ReplaySnapshot(
            self.window,
            {
                sender: tuple(SeenMessage(number, digest) for number, digest in sorted(known.items()))
                for sender, known in self._seen.items()
            },
        )

    @classmethod
    def restore(cls, snapshot: ReplaySnapshot) -> ReplayGuard:
        guard = cls(snapshot.window)
        for sender, messages in snapshot.seen.items():
            guard._seen[sender] = {message.sequence: message.digest for message in messages}
        return guard
