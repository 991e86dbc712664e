"""Every message once: the receiver's memory of sequence numbers.

Transports repeat messages, and brokers may be told to. A sender numbers what it sends to one receiver; the
receiver remembers, per sender, the digests of the last `window` numbers. Same number and same bytes is a
duplicate and is dropped. Same number and other bytes, both signed, is equivocation: proof against the sender.
A number that has left the window can no longer be told apart and is refused as a replay; it costs nothing,
because the transport acknowledges what it delivered and resends only what is recent.

Admit a message only after its signature has been verified, otherwise anyone could use up the numbers of an
honest party. A jump to a huge number harms only the sender that makes it. Memory is bounded by the
number of roster members times the window.

A window serves one life of a process, over all its sessions: numbers go on growing from session to session. The upper
half of a number names the start of its sender, drawn at random, and numbers count from zero in each. A start that is
new ends the one before for good. Nothing of this survives a restart of either side, so a party whose disk is lost or
was put back is heard like any other. Recordings from before our own start cannot come here: they travelled sealed, on
lines whose keys are gone (specs/keys.md, section 11).

Implements specs/wire-format.md, section 3.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilsum.protocol.errors import AbortReason, ParameterError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId

START_SHIFT: Final = 32
STARTS_KEPT: Final = 64
"""How many ended starts of a sender are remembered; only that sender itself could bring back an older one."""
DEFAULT_WINDOW: Final = 256
LARGEST_WINDOW: Final = 4096


class Duplicate(Rejection):
    """The same bytes under the same number again: drop them, nobody erred."""

    def __init__(self, sender: PartyId, sequence: int) -> None:
        super().__init__(AbortReason.REPLAY, f"message {sequence} of {sender} was received before")


class ReplayWindow:
    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        if not 1 <= window <= LARGEST_WINDOW:
            raise ParameterError([f"replay window must be between 1 and {LARGEST_WINDOW}, not {window}"])
        self.window = window
        self._seen: dict[PartyId, dict[int, bytes]] = {}
        self._starts: dict[PartyId, int] = {}
        self._ended: dict[PartyId, deque[int]] = {}

    def admit(self, sender: PartyId, sequence: int, digest: bytes) -> None:
        """Record a verified message, or raise and remember nothing new."""
        start = sequence >> START_SHIFT
        if start != self._starts.get(sender, start):
            self._begin(sender, start)
        self._starts[sender] = start
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
        self._record(sender, sequence, digest)

    def _begin(self, sender: PartyId, start: int) -> None:
        """The sender has started anew, unless this start ended before."""
        ended = self._ended.setdefault(sender, deque(maxlen=STARTS_KEPT))
        if start in ended:
            raise Rejection(AbortReason.REPLAY, f"{sender} has started anew since this message")
        ended.append(self._starts[sender])
        self._seen.pop(sender, None)

    def _record(self, sender: PartyId, sequence: int, digest: bytes) -> None:
        known = self._seen.setdefault(sender, {})
        if known and sequence > max(known):
            floor = sequence - self.window
            for forgotten in [number for number in known if number <= floor]:
                del known[forgotten]
        known[sequence] = digest
