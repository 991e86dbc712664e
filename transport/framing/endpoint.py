"""Reliable messages over a link that loses, doubles, delays, reorders and damages datagrams.

An `Endpoint` is the whole of one party's framing as a state machine: no sockets, no clock, no entropy. The
caller brings `now`, feeds datagrams in, takes datagrams out, and re-arms one timer. Each message arrives
exactly once, intact and in the order of sending per sender, or its sender gets a typed error by the
deadline it named. Why this exists: MQTT's own quality of service is not delivery; brokers drop beyond their
queue limits, at every level, without a word.

Lines and lives
    Datagrams travel over lines (`veilsum.transport.lines`), each with fresh keys from a handshake, so recordings of
    an earlier start of either party open nowhere. What a line cannot know is what the application was given: message
    numbers go on when a line is replaced and begin anew when a party does. So each start draws a nonce, its
    life, and says it in every datagram. Since lines replace each other only in the order in which they were made, the
    life that a party names on its newest line is its present one; on an older line no other life is believed.
    Rejected: ordering lives by wall clock (clocks step back) and a stored counter (a restored backup steps back too).

Acknowledgements
    Each one states in full what the receiver holds, so the newest suffices and none need be repeated. They
    are sealed like data: a broker cannot forge delivery. A message is acknowledged when its turn for
    delivery has come, and it stands ready for the application. Delivery is exactly
    once per life of the receiver; what must survive a restart is for the protocol's own replay protection.

Digests
    The seal of a chunk is its digest and binds its place in the message: life, message, total, chunk size
    and index. Rejected: a SHA-256 over the whole message as well. It proves nothing that the seals do not,
    costs a quarter of the transfer, and what must be attributable is signed over a SHA-256 by the protocol
    above.

The seam
    What a datagram says is taken in within the seam of `veilsum.transport.foreign`. It may still do its harm later,
    when something is computed from it to be sent, or at a deadline. So all that is computed for one peer is computed
    in `_for_peer`: what fails there costs this peer its lines and its unfinished messages, and nobody else anything.

Implements specs/transport.md, sections 1, 5 and 12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from veilsum.transport.errors import AnnouncedTooLarge, BadSetting, StateLost, TooLarge
from veilsum.transport.framing.datagrams import (
    LIFE_BYTES,
    NO_LIFE,
    Ack,
    Chunk,
    Header,
    Probe,
    ReceiverState,
    parse_fields,
)
from veilsum.transport.framing.deadlines import Deadlines
from veilsum.transport.framing.incoming import Incoming
from veilsum.transport.framing.outcomes import Acknowledged, Counters, Delivered, Failed, Outcome, PeerDropped
from veilsum.transport.framing.outgoing import Outgoing
from veilsum.transport.framing.payload import Payload
from veilsum.transport.limits import Limits
from veilsum.transport.lines.book import LineBook
from veilsum.transport.lines.datagrams import ACCEPT, CONFIRM, OPEN, kind_of_datagram, parse_head
from veilsum.transport.lines.plain import PlainCrypto

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer, LineCrypto


MOST_UNTOLD = 64
"""So many dropped peers are kept for whoever asks; all are counted."""


class Endpoint:
    """The framing of one life of one party.

    `life` is a fresh nonce of eight bytes. Without `crypto` a plain checksum guards each datagram against damage,
    and nothing guards it against malice.
    """

    def __init__(
        self,
        address: Address,
        life: bytes,
        limits: Limits | None = None,
        crypto: LineCrypto | None = None,
    ) -> None:
        if len(life) != LIFE_BYTES or life == NO_LIFE:
            raise BadSetting("life", life, f"{LIFE_BYTES} random bytes")
        self.address = address
        self.limits = limits or Limits()
        self.counters = Counters()
        self._life = life
        self._lines = LineBook(crypto or PlainCrypto(address, life), self.limits.lines)
        self._chunk_bytes = self.limits.chunk_bytes
        self._outgoing: dict[Address, Outgoing] = {}
        self._incoming: dict[Address, Incoming] = {}
        self._ready: dict[Address, Outgoing] = {}
        self._accepts_due: dict[Address, bytes] = {}
        self._packed: deque[tuple[Address, bytes]] = deque()
        self._acks_due: dict[Address, int] = {}
        self._acks_later: dict[Address, int] = {}
        self._acks_made = 0
        self._deadlines: Deadlines[tuple[str, Address]] = Deadlines()
        self._inbox: deque[Delivered] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._refusals: dict[Address, AnnouncedTooLarge] = {}
        self._dropped: deque[PeerDropped] = deque(maxlen=MOST_UNTOLD)

    # Messages of the application.

    def send(self, receiver: Address, buffers: Sequence[Buffer], give_up_at: float) -> int:
        """Queue a message; its number comes back in the outcome. The buffers must not change until then.

        Where too many wait for this receiver, the oldest are given up.
        """
        payload = Payload(buffers)
        longest = self.limits.longest_message(self._chunk_bytes)
        if len(payload) > longest:
            raise TooLarge(receiver, len(payload), longest, "max_message_bytes")
        outgoing = self._outgoing.get(receiver)
        if outgoing is None:
            outgoing = self._outgoing[receiver] = Outgoing(receiver, self._life, self.limits)
        number = outgoing.send(payload, self._chunk_bytes, give_up_at)
        self._outcomes.extend(Failed(receiver, oldest, error) for oldest, error in outgoing.make_room())
        self._touch(outgoing)
        return number

    def cancel(self, receiver: Address, message: int) -> None:
        """Forget a message; the receiver may or may not have got it."""
        outgoing = self._outgoing[receiver]
        outgoing.cancel(message)
        self._touch(outgoing)

    def take(self) -> Delivered | None:
        """The next message for the application, which thereby stops counting against its sender's memory."""
        if not self._inbox:
            return None
        delivered = self._inbox.popleft()
        incoming = self._incoming[delivered.sender]
        incoming.release(len(delivered.payload))
        if incoming.starved:
            incoming.starved = False
            self._acks_due.setdefault(delivered.sender, 0)
        return delivered

    def next_outcome(self) -> Outcome | None:
        """What has become of a message that was sent."""
        return self._outcomes.popleft() if self._outcomes else None

    def next_refusal(self) -> AnnouncedTooLarge | None:
        """Who announced a message that is not taken, each sender once until it is asked for."""
        return self._refusals.popitem()[1] if self._refusals else None

    def next_dropped(self) -> PeerDropped | None:
        """Of whom we had to drop what we knew."""
        return self._dropped.popleft() if self._dropped else None

    def held_bytes(self, sender: Address) -> int:
        """How much memory the unfinished and untaken messages of a sender occupy."""
        incoming = self._incoming.get(sender)
        return 0 if incoming is None else incoming.held_bytes

    def repeated_chunks(self, receiver: Address) -> int:
        """How many chunks were sent to a receiver more than once."""
        outgoing = self._outgoing.get(receiver)
        return 0 if outgoing is None else outgoing.repeated_chunks

    # Time.

    def next_deadline(self) -> float | None:
        """When `handle_deadline` wants to be called."""
        return self._deadlines.earliest()

    def handle_deadline(self, now: float) -> None:
        for half, address in self._deadlines.pop_due(now):
            self._for_peer(address, partial(self._handle_one_deadline, half, address, now))

    def _handle_one_deadline(self, half: str, address: Address, now: float) -> None:
        if half == "out":
            outgoing = self._outgoing[address]
            for number, error in outgoing.handle_deadline(now):
                self._outcomes.append(Failed(address, number, error))
            self._touch(outgoing)
        elif half == "ack":
            self._acks_due[address] = self._acks_later.pop(address)
        elif self._incoming[address].heard_at + self.limits.idle_s <= now:
            self._incoming[address].forget_partial_messages()
        else:
            self._watch_idleness(address)

    # The seam.

    def _for_peer(self, peer: Address, work: Callable[[], None]) -> None:
        """Compute something for one peer; what that raises costs this peer what we know of it."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the seam: what a peer made us compute ends no process
            self._drop_peer(peer, error)

    def _drop_peer(self, peer: Address, error: Exception) -> None:
        """Numbers go on, so that nothing is delivered twice or taken for delivered; all else begins anew."""
        self.counters.peers_dropped += 1
        self._dropped.append(PeerDropped(peer, error))
        self._lines.hang_up(peer)
        for due in (self._accepts_due, self._acks_due, self._acks_later, self._ready):
            due.pop(peer, None)
        for half in ("out", "ack", "in"):
            self._deadlines.set((half, peer), None)
        if (incoming := self._incoming.get(peer)) is not None:
            incoming.lose_trust()
        if (outgoing := self._outgoing.pop(peer, None)) is not None:
            self._outgoing[peer] = outgoing.successor()
            lost = StateLost(peer, f"{type(error).__name__}: {error}")
            self._outcomes.extend(Failed(peer, number, lost) for number in outgoing.unfinished())

    # Datagrams.

    def limit_datagrams(self, largest_datagram: int | None) -> None:
        """Adapt the chunks of messages sent from now on to what the link carries."""
        self._chunk_bytes = self.limits.chunk_bytes_for(largest_datagram)

    def link_restored(self) -> None:
        """The link was interrupted: ask every receiver at once what it still misses."""
        for receiver in list(self._outgoing):
            self._for_peer(receiver, partial(self._ask_again, receiver))

    def _ask_again(self, receiver: Address) -> None:
        outgoing = self._outgoing[receiver]
        outgoing.ask_again()
        self._touch(outgoing)

    def next_datagram(self, now: float) -> tuple[Address, bytes] | None:
        """The next datagram to send and its receiver; call until None."""
        while not self._packed:
            if self._accepts_due:
                sender = next(iter(self._accepts_due))
                self._packed.append((sender, self._accepts_due.pop(sender)))
            elif self._acks_due:
                sender = next(iter(self._acks_due))
                self._for_peer(sender, partial(self._pack_ack, sender, self._acks_due.pop(sender)))
            elif self._ready:
                receiver = next(iter(self._ready))
                self._for_peer(receiver, partial(self._pack_next, receiver, now))
            else:
                return None
        self.counters.sent += 1
        return self._packed.popleft()

    def _pack_next(self, receiver: Address, now: float) -> None:
        """What the turn of a receiver brings: a chunk or a question, or nothing, and then its turn is over."""
        outgoing = self._ready.pop(receiver)
        item = outgoing.next_datagram(now)
        self._deadlines.set(("out", receiver), outgoing.next_deadline())
        if item is None:
            return
        self._ready[receiver] = outgoing
        if isinstance(item, Probe):
            packed = self._lines.ask(receiver, item.fields(), now, outgoing.take_timeout())
        else:
            packed = self._lines.carry(receiver, item[0].fields(), item[1], now)
        self._packed.extend((receiver, datagram) for datagram in packed)

    def receive_datagram(self, sender: Address, datagram: Buffer, now: float) -> None:
        """Take in one datagram; whatever `sender` did not seal for us is counted and dropped."""
        view = memoryview(datagram)
        kind = kind_of_datagram(view)
        if kind is None:
            self.counters.malformed += 1
        elif kind in (OPEN, ACCEPT, CONFIRM):
            self.counters.not_opened += not self._receive_handshake(sender, kind, view, now)
        else:
            self._receive_frame(sender, kind, view, now)

    def _receive_handshake(self, sender: Address, kind: int, datagram: memoryview, now: float) -> bool:
        if kind == CONFIRM:
            confirmed = self._lines.hear_confirm(sender, datagram)
            if confirmed and sender in self._outgoing and self._outgoing[sender].seems_away:
                self._ask_again(sender)
            return confirmed
        if kind == OPEN:
            answer = self._lines.hear_open(sender, datagram, now)
            if answer is not None:
                self._accepts_due[sender] = answer
            return answer is not None
        if not self._lines.hear_accept(sender, datagram, now):
            return False
        self._ask_again(sender)
        return True

    def _receive_frame(self, sender: Address, kind: int, datagram: memoryview, now: float) -> None:
        parsed = parse_fields(kind, datagram)
        if parsed is None or self._is_cut_too_fine(parsed[0]):
            self.counters.malformed += 1
            return
        header, length = parsed
        opened = self._lines.open(sender, kind, bytes(datagram[:length]), datagram[length:])
        if opened is None:
            self.counters.not_opened += 1
        elif isinstance(header, Ack):
            self._receive_ack(sender, header, opened.data, parse_head(datagram)[0], now)
        elif self._knows_life(sender, header, opened.newest):
            urgent = self._receive_data(sender, header, opened.data, now)
            self._owe_ack(sender, header.number, None if urgent else now + self.limits.ack_delay_s)
        else:
            self.counters.other_life += 1

    def _is_cut_too_fine(self, header: Header) -> bool:
        """Tiny chunks of a large message cost its sender little, and us a long bitmap in every acknowledgement."""
        return (
            isinstance(header, Chunk) and header.count > 1 and header.chunk_size < self.limits.smallest_chunk
        )

    def _receive_ack(self, sender: Address, ack: Ack, body: Buffer, line: bytes, now: float) -> None:
        state = ReceiverState.parse(body)
        outgoing = self._outgoing.get(sender)
        if state is None or outgoing is None or ack.answered > outgoing.last_number:
            self.counters.malformed += state is None or outgoing is not None
            return
        for number, error in outgoing.receive_ack(ack, state, line, now):
            outcome = Acknowledged(sender, number) if error is None else Failed(sender, number, error)
            self._outcomes.append(outcome)
        self._touch(outgoing)

    def _knows_life(self, sender: Address, header: Chunk | Probe, newest: bool) -> bool:
        """Whether this is the sender's present life; on its newest line it may say that a new one has begun."""
        incoming = self._incoming.get(sender)
        if incoming is None:
            incoming = self._incoming[sender] = Incoming(self.limits)
        if newest and header.life != incoming.life:
            incoming.meet(header.life, header.floor)
        return header.life == incoming.life

    def _receive_data(self, sender: Address, header: Chunk | Probe, body: Buffer, now: float) -> bool:
        """Take in a chunk or a probe, and say whether its sender should hear from us at once."""
        incoming = self._incoming[sender]
        incoming.heard_at = now
        if isinstance(header, Chunk):
            ready = incoming.receive_chunk(header, body)
            if header.total > self.limits.max_message_bytes:
                self._refusals[sender] = AnnouncedTooLarge(
                    sender, header.total, self.limits.max_message_bytes
                )
            urgent = incoming.ack_is_urgent
        else:
            ready = incoming.raise_floor(header.floor)
            urgent = True
        self._inbox.extend(Delivered(sender, payload) for payload in ready)
        self._watch_idleness(sender)
        return urgent

    def _owe_ack(self, sender: Address, number: int, at: float | None) -> None:
        """Answer at once, or (`at`) a little later, together with what arrives meanwhile."""
        if at is None or sender in self._acks_due:
            self._acks_later.pop(sender, None)
            self._deadlines.set(("ack", sender), None)
            self._acks_due[sender] = number
        else:
            if sender not in self._acks_later:
                self._deadlines.set(("ack", sender), at)
            self._acks_later[sender] = number

    def _pack_ack(self, sender: Address, answered: int) -> None:
        self._acks_made += 1
        ack = Ack(self._life, self._acks_made, answered)
        state = self._incoming[sender].state(self.limits.bitmap_bytes_for(self._chunk_bytes))
        datagram = self._lines.acknowledge(sender, ack.fields(), state.pack())
        if datagram is not None:
            self._packed.append((sender, datagram))

    def _touch(self, outgoing: Outgoing) -> None:
        self._ready.setdefault(outgoing.receiver, outgoing)
        self._deadlines.set(("out", outgoing.receiver), outgoing.next_deadline())

    def _watch_idleness(self, sender: Address) -> None:
        incoming = self._incoming[sender]
        idle_at = incoming.heard_at + self.limits.idle_s if incoming.holds_partial_messages else None
        self._deadlines.set(("in", sender), idle_at)
