"""A message on its way: its bytes, where they are, and which of its chunks the receiver has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilsum.transport.framing.datagrams import chunk_count

if TYPE_CHECKING:
    from veilsum.transport.base import Buffer


class Payload:
    """Several buffers read as one, without joining them."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        views = (memoryview(buffer).cast("B") for buffer in buffers)
        self._views = [view for view in views if len(view)]
        self._starts = [0]
        for view in self._views:
            self._starts.append(self._starts[-1] + len(view))

    def __len__(self) -> int:
        return self._starts[-1]

    def slice(self, start: int, size: int) -> Buffer:
        """The bytes from `start` on: a view where one buffer holds them, a copy where they span several."""
        pieces: list[memoryview] = []
        number = bisect_right(self._starts, start) - 1
        while size:
            offset = start - self._starts[number]
            piece = self._views[number][offset : offset + size]
            pieces.append(piece)
            start, size, number = start + len(piece), size - len(piece), number + 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(slots=True, eq=False)
class Message:
    """One message on its way: a bit per chunk that has arrived, now or ever, and per chunk that is in flight."""

    id: int
    payload: Payload
    chunk_size: int
    give_up_at: float
    arrived: int = 0
    ever_arrived: int = 0
    flying: int = 0
    packed: int = 0

    @property
    def total(self) -> int:
        return len(self.payload)

    @property
    def count(self) -> int:
        return chunk_count(self.total, self.chunk_size)

    def next_index(self) -> int | None:
        """The lowest chunk that has neither arrived nor is in flight."""
        waiting = ~(self.arrived | self.flying) & ((1 << self.count) - 1)
        return (waiting & -waiting).bit_length() - 1 if waiting else None

    def body(self, index: int) -> Buffer:
        """The data of one chunk; first packings come in order."""
        self.packed = max(self.packed, index + 1)
        start = index * self.chunk_size
        return self.payload.slice(start, min(self.chunk_size, self.total - start))
