"""The receiving half of framing: all messages from one sender to this party.

Nothing is kept for a chunk that did not open, so only a sender that holds the right keys can occupy memory: two
quotas at most, each the size of the largest message plus the overhead of all messages that may be open. Messages
ahead of their turn are admitted to the first quota only, so that the next in turn always finds room and waiting
for it never locks up.

Implements specs/transport.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veilsum.transport.framing.datagrams import NO_LIFE, Chunk, ReceiverState, stated_bytes

if TYPE_CHECKING:
    from veilsum.transport.base import Buffer
    from veilsum.transport.limits import Limits

MESSAGE_OVERHEAD = 256
"""What an open message costs besides its data, so that empty messages are bounded too."""

MOST_CHUNKS_AHEAD = 4096
"""How many chunks of one sender wait for one before them, so that small ones are bounded too; more come again."""


class Reassembly:
    """One message being put together, in memory that grows with what has arrived and never with what was announced.

    Chunks in their turn are appended to one buffer, the others wait. Rejected: a buffer of the announced size, for one
    chunk of a few KiB then occupies `max_message_bytes` and holds up everybody while the kernel maps it; and keeping
    all chunks to join them at the end, which needs twice the memory and twice the time.
    """

    def __init__(self, first: Chunk) -> None:
        self.total = first.total
        self.chunk_size = first.chunk_size
        self.arrived = 0
        self._count = first.count
        self._whole: memoryview | None = None
        self._front = bytearray()
        self._in_front = 0
        self._ahead: dict[int, memoryview] = {}

    @property
    def complete(self) -> bool:
        return self._in_front == self._count

    @property
    def payload(self) -> memoryview:
        """What stands together so far; once complete, the message."""
        return memoryview(self._front) if self._whole is None else self._whole

    @property
    def chunks_ahead(self) -> int:
        return len(self._ahead)

    def is_next(self, index: int) -> bool:
        return index == self._in_front

    def add(self, index: int, body: memoryview) -> None:
        self.arrived |= 1 << index
        if self._count == 1:
            self._whole, self._in_front = body, 1
            return
        self._ahead[index] = body
        while (following := self._ahead.pop(self._in_front, None)) is not None:
            self._front += following
            self._in_front += 1


class Incoming:
    """What one sender has under way for us."""

    def __init__(self, limits: Limits) -> None:
        self.life = NO_LIFE
        self.starved = False
        self.ack_is_urgent = False
        self.heard_at = 0.0
        self._limits = limits
        self._quota = limits.max_message_bytes + limits.most_open_messages * MESSAGE_OVERHEAD
        self._next_id = 0
        self._partial: dict[int, Reassembly] = {}
        self._partial_bytes = 0
        self._unacknowledged_bytes = 0
        self._unread_bytes = 0

    @property
    def holds_partial_messages(self) -> bool:
        return bool(self._partial)

    @property
    def held_bytes(self) -> int:
        return self._partial_bytes + self._unread_bytes

    def state(self, most_bytes: int) -> ReceiverState:
        """What to acknowledge now; whoever is told of too little room is to be told when there is more.

        The bitmaps fill `most_bytes` at most. Messages later than that are left out: their chunks come again, or are
        stated when those before them are delivered.
        """
        self._unacknowledged_bytes = 0
        room = max(0, 2 * self._quota - self.held_bytes - MESSAGE_OVERHEAD)
        self.starved = room < self._limits.max_message_bytes
        bitmaps: dict[int, int] = {}
        for number in sorted(self._partial):
            most_bytes -= stated_bytes(self._partial[number].arrived)
            if most_bytes < 0:
                break
            bitmaps[number] = self._partial[number].arrived
        return ReceiverState(self._next_id, room, self._limits.max_message_bytes, bitmaps)

    def meet(self, life: bytes, floor: int) -> None:
        """The sender has started anew and counts from the beginning: what its last life left unfinished is over."""
        self.forget_partial_messages()
        self.life = life
        self._next_id = floor

    def receive_chunk(self, chunk: Chunk, body: Buffer) -> list[memoryview]:
        """Take in a chunk of the sender's present life; returns the messages whose turn has come, in order."""
        self.ack_is_urgent = True
        ready = self.raise_floor(chunk.floor)
        message = self._find_or_admit(chunk)
        if message is None or message.arrived >> chunk.index & 1 or len(body) != chunk.body_size:
            return ready
        if not message.is_next(chunk.index) and self._chunks_ahead() >= MOST_CHUNKS_AHEAD:
            return ready
        message.add(chunk.index, memoryview(body))
        self._unacknowledged_bytes += len(body)
        self.ack_is_urgent = message.complete or 4 * self._unacknowledged_bytes >= self._limits.window_bytes
        return ready + self._deliver()

    def raise_floor(self, floor: int) -> list[memoryview]:
        """The sender has given up on everything below `floor`: stop waiting for it."""
        if floor <= self._next_id:
            return []
        for number in [number for number in self._partial if number < floor]:
            self._discard(number)
        self._next_id = floor
        return self._deliver()

    def release(self, payload_bytes: int) -> None:
        """The application has taken a message off our hands."""
        self._unread_bytes -= payload_bytes + MESSAGE_OVERHEAD

    def forget_partial_messages(self) -> None:
        for number in list(self._partial):
            self._discard(number)

    def lose_trust(self) -> None:
        """Something about this sender cannot be computed: what is unfinished is over, what was taken in stays so."""
        self._partial.clear()
        self._partial_bytes = 0
        self._unacknowledged_bytes = 0

    def _find_or_admit(self, chunk: Chunk) -> Reassembly | None:
        known = self._partial.get(chunk.message)
        if known is not None:
            agrees = (known.total, known.chunk_size) == (chunk.total, chunk.chunk_size)
            return known if agrees else None
        if not self._next_id <= chunk.message < self._next_id + self._limits.most_open_messages:
            return None
        if chunk.total > self._limits.max_message_bytes:
            return None
        quotas = 2 if chunk.message == self._next_id else 1
        cost = chunk.total + MESSAGE_OVERHEAD
        if self.held_bytes + cost > quotas * self._quota:
            return None
        message = self._partial[chunk.message] = Reassembly(chunk)
        self._partial_bytes += cost
        return message

    def _deliver(self) -> list[memoryview]:
        ready: list[memoryview] = []
        while (message := self._partial.get(self._next_id)) is not None and message.complete:
            self._discard(self._next_id)
            self._unread_bytes += message.total + MESSAGE_OVERHEAD
            self._next_id += 1
            ready.append(message.payload)
        return ready

    def _chunks_ahead(self) -> int:
        return sum(message.chunks_ahead for message in self._partial.values())

    def _discard(self, number: int) -> None:
        self._partial_bytes -= self._partial.pop(number).total + MESSAGE_OVERHEAD
