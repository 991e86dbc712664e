"""The numbers that bound framing: sizes, windows, memory and patience.

Implements specs/transport.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from veilsum.transport.errors import BadSetting
from veilsum.transport.framing.datagrams import MOST_CHUNKS
from veilsum.transport.lines.line import LineLimits

KIB = 1 << 10
MIB = 1 << 20

SEALING_ALLOWANCE = 4 * KIB
"""What a datagram may need beyond its data: header, the caller's seal and the broker's topic."""

SMALLEST_LINK_DATAGRAM = 2 * SEALING_ALLOWANCE

SMALLEST_CHUNK = SMALLEST_LINK_DATAGRAM - SEALING_ALLOWANCE
"""What honest senders cut a message of several chunks into, on the narrowest link, at least."""

MOST_BITMAP_BYTES = 64 * KIB
"""Of one acknowledgement; on a narrow link it is a chunk."""

_ENTRY_ALLOWANCE = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one endpoint. A sender occupies about twice `max_message_bytes` of a receiver's memory at most."""

    chunk_bytes: int = 512 * KIB
    window_bytes: int = 16 * MIB
    max_message_bytes: int = 512 * MIB
    most_open_messages: int = 256
    first_timeout_s: float = 1.0
    shortest_timeout_s: float = 0.2
    longest_timeout_s: float = 5.0
    ack_delay_s: float = 0.02
    idle_s: float = 900.0
    lines: LineLimits = field(default_factory=LineLimits)

    def __post_init__(self) -> None:
        for name in ("chunk_bytes", "window_bytes", "max_message_bytes", "most_open_messages"):
            if getattr(self, name) < 1:
                raise BadSetting(name, getattr(self, name), "at least 1")
        if not 0 < self.shortest_timeout_s <= self.first_timeout_s <= self.longest_timeout_s:
            raise BadSetting(
                "timeouts", self, "0 < shortest_timeout_s <= first_timeout_s <= longest_timeout_s"
            )
        if not 0 <= self.ack_delay_s <= self.shortest_timeout_s / 2:
            raise BadSetting("ack_delay_s", self.ack_delay_s, "from 0 to half of shortest_timeout_s")
        if self.idle_s <= self.longest_timeout_s:
            raise BadSetting("idle_s", self.idle_s, f"more than longest_timeout_s, {self.longest_timeout_s}")

    def chunk_bytes_for(self, largest_datagram: int | None) -> int:
        """The chunk size for a link that carries datagrams up to a size."""
        if largest_datagram is None:
            return self.chunk_bytes
        if largest_datagram < SMALLEST_LINK_DATAGRAM:
            raise BadSetting(
                "largest datagram of the link", largest_datagram, f"at least {SMALLEST_LINK_DATAGRAM}"
            )
        return min(self.chunk_bytes, largest_datagram - SEALING_ALLOWANCE)

    def for_messages(self, largest: int | None) -> Limits:
        """The same, where the caller knows that no message is larger than this."""
        if largest is None or largest >= self.max_message_bytes:
            return self
        return replace(self, max_message_bytes=largest)

    @property
    def smallest_chunk(self) -> int:
        """Of a message in several chunks; whoever sends smaller ones takes such, too."""
        return min(self.chunk_bytes, SMALLEST_CHUNK)

    def bitmap_bytes_for(self, chunk_bytes: int) -> int:
        """How many bytes of bitmaps an acknowledgement may hold where chunks are this long."""
        return min(max(chunk_bytes, SMALLEST_CHUNK), MOST_BITMAP_BYTES)

    def longest_message(self, chunk_bytes: int) -> int:
        """What can be sent: its chunks can be counted, and stated in one acknowledgement."""
        stated = 8 * (self.bitmap_bytes_for(chunk_bytes) - _ENTRY_ALLOWANCE)
        return min(self.max_message_bytes, chunk_bytes * min(MOST_CHUNKS, stated))
