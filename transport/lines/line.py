"""One end of a line: its keys, how much was sealed under them, and which numbers of the other end are known.

A number that was opened is never opened again, and none that lies `REPLAY_WINDOW` or more behind the highest. Counters
live and die with the line's keys: nothing here can be put back to zero, and nothing is written to disk.

Implements specs/transport.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilsum.transport.errors import BadSetting
from veilsum.transport.lines.datagrams import pack_head

if TYPE_CHECKING:
    from veilsum.transport.base import Buffer, LineSeal

REPLAY_WINDOW = 1024
BOXES_OF_A_LINE = 2**32


@dataclass(frozen=True, slots=True)
class LineLimits:
    """When an opener asks for a new line, and what a sender of many `open`s may cost its receiver."""

    most_boxes: int = 2**24
    most_bytes: int = 2**40
    longest_s: float = 24 * 3600.0
    most_unconfirmed: int = 4
    opens_per_s: int = 5
    opens_remembered: int = 1024
    timeouts_before_new: int = 2
    askings_of_one_open: int = 4
    ask_again_s: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise BadSetting(name, getattr(self, name), "more than 0")
        if self.most_boxes > BOXES_OF_A_LINE:
            raise BadSetting("most_boxes", self.most_boxes, f"at most {BOXES_OF_A_LINE}")


class ReplayNumbers:
    """Which of the newest numbers were seen: a bit each, the highest at bit 0."""

    __slots__ = ("_bits", "highest")

    def __init__(self) -> None:
        self.highest = -1
        self._bits = 0

    def is_new(self, number: int) -> bool:
        behind = self.highest - number
        return behind < 0 or (behind < REPLAY_WINDOW and not self._bits >> behind & 1)

    def note(self, number: int) -> None:
        ahead = number - self.highest
        if ahead > 0:
            kept = self._bits << ahead if ahead < REPLAY_WINDOW else 0
            self._bits = kept & ((1 << REPLAY_WINDOW) - 1) | 1
            self.highest = number
        else:
            self._bits |= 1 << -ahead


class Line:
    """Our end of one line; `order` says which of the lines of its sender was accepted later."""

    __slots__ = ("_made_at", "_next_number", "_seal", "_sealed_bytes", "_seen", "order")

    def __init__(self, seal: LineSeal, now: float, order: int = 0) -> None:
        self.order = order
        self._seal = seal
        self._made_at = now
        self._next_number = 0
        self._sealed_bytes = 0
        self._seen = ReplayNumbers()

    @property
    def id(self) -> bytes:
        return self._seal.id

    def seal(self, kind: int, fields: bytes, data: Buffer) -> bytes | None:
        """A whole datagram under the next number, or None if the line has none left."""
        if self._next_number >= BOXES_OF_A_LINE:
            return None
        header = pack_head(kind, self.id, self._next_number) + fields
        self._next_number += 1
        self._sealed_bytes += len(data)
        return b"".join((header, self._seal.seal(self._next_number - 1, data, header)))

    def open(self, number: int, header: bytes, sealed: Buffer) -> Buffer | None:
        """The data of a datagram that is new on this line, or None."""
        if number >= BOXES_OF_A_LINE or not self._seen.is_new(number):
            return None
        data = self._seal.open(number, sealed, header)
        if data is not None:
            self._seen.note(number)
        return data

    def is_worn(self, limits: LineLimits, now: float) -> bool:
        """Whether a new line should take over; the acknowledgements of the other end count, too."""
        return (
            max(self._next_number, self._seen.highest) >= limits.most_boxes
            or self._sealed_bytes >= limits.most_bytes
            or now - self._made_at >= limits.longest_s
        )
