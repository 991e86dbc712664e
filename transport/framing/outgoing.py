"""The sending half of framing: all messages from this party to one receiver.

Chunks fly within a window of bytes. Every datagram has a number that is never used twice, and an
acknowledgement repeats the number that it answers, so that round-trip times are never ambiguous and a chunk
counts as lost as soon as an acknowledgement answers a clearly later number without listing it.

A timeout never repeats data: it sends a probe of a few bytes, and the answer says what is missing. A
receiver that sleeps, has gone or sits behind a full queue therefore costs bytes, not megabytes, and after a
reconnection only missing chunks travel again. Rejected: one timer per chunk, which repeats whole windows
into a queue that is only slow.

A receiver that lies cannot make us send without end. What counts is what arrived for the first time: where more got
lost than that, the allowance is halved, and after a few acknowledgements in a row that show nothing new each further
chunk waits for a timeout, which doubles. A life of the receiver comes with a line of its own, and we open the lines.

Implements specs/transport.md, section 6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilsum.transport.errors import Displaced, TooLarge, TransportError, Unreachable
from veilsum.transport.framing.datagrams import NO_LIFE, Ack, Chunk, Probe, ReceiverState
from veilsum.transport.framing.payload import Message, Payload

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer
    from veilsum.transport.limits import Limits

REORDERING = 3
"""A chunk is lost when a datagram sent this many later is answered and the chunk is still missing."""
MOST_DOUBLINGS = 32
"""Of a timeout; any two timeouts of `Limits` are closer than that, and a float has room for it."""


@dataclass(frozen=True, slots=True)
class _Flight:
    number: int
    size: int


@dataclass(slots=True)
class _RoundTrip:
    """Smoothed round-trip time after RFC 6298, and the back-off on top of it."""

    limits: Limits
    smoothed: float | None = None
    variation: float = 0.0
    backoff: int = 0

    def sample(self, seconds: float) -> None:
        if self.smoothed is None:
            self.smoothed, self.variation = seconds, seconds / 2
        else:
            self.variation += (abs(self.smoothed - seconds) - self.variation) / 4
            self.smoothed += (seconds - self.smoothed) / 8

    def back_off(self) -> None:
        """Double the timeout; a receiver may be away for days."""
        self.backoff = min(self.backoff + 1, MOST_DOUBLINGS)

    def timeout(self) -> float:
        limits = self.limits
        base = limits.first_timeout_s if self.smoothed is None else self.smoothed + 4 * self.variation
        return float(min(max(base, limits.shortest_timeout_s) * 2**self.backoff, limits.longest_timeout_s))


MOST_FRUITLESS = 4
"""So many acknowledgements in a row may show losses and nothing new before chunks wait for timeouts."""
MOST_WAITING = 8192
BYTES_WAITING = 1 << 28
"""So many messages wait for one receiver, with so many bytes, or two of the largest messages if that is more."""
MOST_TIMED = 4096
"""Of so many datagrams at most we remember when they were sent."""


class Outgoing:
    """What one life of a sender has under way for one receiver."""

    def __init__(self, receiver: Address, own_life: bytes, limits: Limits) -> None:
        self.receiver = receiver
        self.repeated_chunks = 0
        self._own_life = own_life
        self._limits = limits
        self._next_id = 0
        self._last_number = 0
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._open: dict[int, Message] = {}
        self._flights: dict[tuple[int, int], _Flight] = {}
        self._flying_bytes = 0
        self._sent_at: dict[int, float] = {}
        self._allowance = limits.window_bytes
        self._fruitless = 0
        self._held_until = 0.0
        self._peer_life = NO_LIFE
        self._line_of_life = b""
        self._newest_ack = 0
        self._room = limits.max_message_bytes
        self._anything_arrived = False
        self._round_trip = _RoundTrip(limits)
        self._probe_due = False
        self._in_doubt = True
        self._asked = 0
        self._timer: float | None = None
        self._timed_out = False

    # What the caller wants.

    def send(self, payload: Payload, chunk_size: int, give_up_at: float) -> int:
        message = Message(self._next_id, payload, chunk_size, give_up_at)
        self._next_id += 1
        self._queue.append(message)
        self._queued_bytes += message.total
        if self._in_doubt and not self._open and len(self._queue) == 1:
            self._probe_due = True
        return message.id

    def make_room(self) -> list[tuple[int, TransportError]]:
        """Give up the oldest messages that wait, where too many do: a receiver that acknowledges nothing holds few."""
        most_bytes = max(BYTES_WAITING, 2 * self._limits.max_message_bytes)
        given_up: list[tuple[int, TransportError]] = []
        while len(self._queue) > MOST_WAITING or self._queued_bytes > most_bytes:
            oldest = self._queue[0]
            detail = f"{len(self._queue)} wait for it, with {self._queued_bytes} bytes"
            given_up.append((oldest.id, Displaced(self.receiver, detail)))
            self._forget(oldest)
        return given_up

    def cancel(self, message_id: int) -> None:
        for message in [*self._queue, *self._open.values()]:
            if message.id == message_id:
                self._forget(message)

    @property
    def seems_away(self) -> bool:
        """Whether the receiver has never answered, or not in time."""
        return self._peer_life == NO_LIFE or self._round_trip.backoff > 0

    def ask_again(self) -> None:
        """The link was interrupted, there is a new line, or who seemed away is back: ask at once."""
        self._round_trip.backoff = 0
        self._doubt()

    def successor(self) -> Outgoing:
        """A fresh state for the same receiver, which knows our numbers and must not meet one of them twice."""
        fresh = Outgoing(self.receiver, self._own_life, self._limits)
        fresh._next_id, fresh._last_number = self._next_id, self._last_number
        return fresh

    def unfinished(self) -> list[int]:
        """The numbers of all messages that are neither delivered nor given up."""
        return [message.id for message in self._unfinished()]

    # What the clock says.

    def next_deadline(self) -> float | None:
        deadlines = [message.give_up_at for message in self._unfinished()]
        if deadlines and self._timer is not None:
            deadlines.append(self._timer)
        return min(deadlines, default=None)

    def handle_deadline(self, now: float) -> list[tuple[int, TransportError]]:
        """Give up on what is overdue, and ask when an answer is overdue."""
        overdue = [message for message in self._unfinished() if message.give_up_at <= now]
        failed = [(message.id, Unreachable(self.receiver, self._diagnosis(message))) for message in overdue]
        for message in overdue:
            self._forget(message)
        if self._timer is not None and self._timer <= now:
            self._timer = None
            self._round_trip.back_off()
            self._allowance = self._limits.chunk_bytes
            self._timed_out = True
            self._doubt()
        return list(failed)

    # What goes out.

    def next_datagram(self, now: float) -> Probe | tuple[Chunk, Buffer] | None:
        if not (self._queue or self._open):
            return None
        if self._probe_due:
            self._probe_due = False
            probe = Probe(self._own_life, self._number(now), self._floor())
            self._asked = probe.number
            self._timer = now + self._round_trip.timeout()
            return probe
        chosen = None if self._in_doubt or now < self._held_until else self._next_chunk()
        if self._timer is None:
            self._timer = now + self._round_trip.timeout()
        if chosen is None:
            return None
        message, index = chosen
        chunk = Chunk(
            self._own_life,
            self._number(now),
            message.id,
            self._floor(),
            message.total,
            message.chunk_size,
            index,
        )
        self.repeated_chunks += index < message.packed
        body = message.body(index)
        message.flying |= 1 << index
        self._flights[message.id, index] = _Flight(chunk.number, len(body))
        self._flying_bytes += len(body)
        return chunk, body

    def take_timeout(self) -> bool:
        """Whether a timeout has passed since this was asked last."""
        timed_out, self._timed_out = self._timed_out, False
        return timed_out

    def _next_chunk(self) -> tuple[Message, int] | None:
        if self._flights and self._flying_bytes + self._limits.chunk_bytes > self._allowance:
            return None
        for message in self._open.values():
            index = message.next_index()
            if index is not None:
                return message, index
        if self._queue and self._may_open(self._queue[0]):
            message = self._queue.popleft()
            self._queued_bytes -= message.total
            self._open[message.id] = message
            return message, 0
        return None

    def _may_open(self, message: Message) -> bool:
        if len(self._open) >= self._limits.most_open_messages or message.total > self._room:
            return False
        already = sum(other.total for other in self._open.values())
        return not already or already + message.total <= self._limits.max_message_bytes

    # What comes back.

    @property
    def last_number(self) -> int:
        """Of the datagrams that we sent."""
        return self._last_number

    def receive_ack(
        self, ack: Ack, state: ReceiverState, line: bytes, now: float
    ) -> list[tuple[int, TransportError | None]]:
        """Learn what the receiver has; returns every message that is thereby delivered (None) or hopeless."""
        if not self._accept_news(ack, line):
            return []
        if ack.answered in self._sent_at:
            self._round_trip.sample(now - self._sent_at[ack.answered])
            self._sent_at = {number: at for number, at in self._sent_at.items() if number > ack.answered}
        self._room = state.room
        self._in_doubt = False
        progress, lost = self._note_arrivals(state)
        lost += self._note_losses(ack.answered)
        self._weigh(progress, lost, now)
        self._timer = now + self._round_trip.timeout() if self._flights else None
        if now < self._held_until:
            self._timer = self._held_until
        return self._settle(state)

    def _weigh(self, progress: int, lost: int, now: float) -> None:
        """Go on faster or slower after so many bytes that are new at the receiver, and so many to be repeated."""
        if lost > progress:
            self._allowance = max(self._allowance // 2, self._limits.chunk_bytes)
            self._fruitless += 1
        if progress:
            self._anything_arrived = True
            self._fruitless = 0
            self._round_trip.backoff = 0
            self._allowance = min(self._allowance + progress, self._limits.window_bytes)
        elif lost and self._fruitless > MOST_FRUITLESS:
            self._held_until = now + self._round_trip.timeout()

    def _settle(self, state: ReceiverState) -> list[tuple[int, TransportError | None]]:
        settled: list[tuple[int, TransportError | None]] = []
        for message in list(self._unfinished()):
            if message.id < state.delivered_below:
                settled.append((message.id, None))
            elif message.total > state.max_message:
                limit = TooLarge(self.receiver, message.total, state.max_message, "the receiver's limit")
                settled.append((message.id, limit))
            else:
                continue
            self._forget(message)
        if not (self._open or self._queue):
            self._timer = None
        return settled

    def _accept_news(self, ack: Ack, line: bytes) -> bool:
        """Newest wins. Another life is a later one, on a line that was opened when the last one had gone silent."""
        if ack.life != self._peer_life:
            if line == self._line_of_life:
                return False
            self._meet(ack.life)
        elif ack.number <= self._newest_ack:
            return False
        self._line_of_life = line
        self._newest_ack = ack.number
        return True

    def _meet(self, life: bytes) -> None:
        """A life of the receiver that we did not know: it has nothing of what earlier lives acknowledged."""
        if self._peer_life != NO_LIFE:
            self._allowance = self._limits.chunk_bytes
        self._peer_life = life
        self._flights.clear()
        self._flying_bytes = 0
        for message in self._open.values():
            message.arrived = message.flying = message.ever_arrived = 0

    def _note_arrivals(self, state: ReceiverState) -> tuple[int, int]:
        """How many bytes the receiver has for the first time, and how many it had and has no more."""
        progress = forgotten = 0
        for message in self._open.values():
            before, all_chunks = message.arrived, (1 << message.count) - 1
            message.arrived = state.bitmaps.get(message.id, 0) & all_chunks
            if message.id < state.delivered_below:
                message.arrived = all_chunks
            forgotten += (before & ~message.arrived).bit_count() * message.chunk_size
            landed = message.arrived & message.flying
            while landed:
                index = (landed & -landed).bit_length() - 1
                size = self._land(message, index)
                progress += 0 if message.ever_arrived >> index & 1 else size
                landed &= landed - 1
            message.ever_arrived |= message.arrived
        return progress, forgotten

    def _note_losses(self, answered: int) -> int:
        """How many bytes are to be repeated since they must have got lost."""
        known_below = self._asked if answered >= self._asked else 0
        threshold = max(known_below, answered - REORDERING)
        lost = [key for key, flight in self._flights.items() if flight.number < threshold]
        return sum(self._land(self._open[message_id], index) for message_id, index in lost)

    def _land(self, message: Message, index: int) -> int:
        message.flying &= ~(1 << index)
        size = self._flights.pop((message.id, index)).size
        self._flying_bytes -= size
        return size

    # Book-keeping.

    def _doubt(self) -> None:
        self._in_doubt = True
        self._probe_due = True

    def _unfinished(self) -> Iterator[Message]:
        yield from self._open.values()
        yield from self._queue

    def _floor(self) -> int:
        return min((message.id for message in self._unfinished()), default=self._next_id)

    def _number(self, now: float) -> int:
        self._last_number += 1
        self._sent_at[self._last_number] = now
        if len(self._sent_at) > MOST_TIMED:
            del self._sent_at[next(iter(self._sent_at))]
        return self._last_number

    def _forget(self, message: Message) -> None:
        for key in [key for key in self._flights if key[0] == message.id]:
            self._land(message, key[1])
        if self._open.pop(message.id, None) is None:
            self._queue.remove(message)
            self._queued_bytes -= message.total
        if not (self._open or self._queue):
            self._timer = None

    def _diagnosis(self, message: Message) -> str:
        if self._peer_life == NO_LIFE:
            return "it never answered: it is not running, or the broker lets no message through between us"
        if not self._anything_arrived and message.count > 1:
            return (
                f"it answers, but no chunk of {message.chunk_size} bytes gets through: "
                "choose a chunk size below the message limit of the broker"
            )
        arrived = message.arrived.bit_count()
        return f"it answered earlier, and {arrived} of {message.count} chunks arrived"
