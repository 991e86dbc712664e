"""Networks in memory on virtual time, for simulations: nobody waits, and a run is a function of its seed.

`VirtualNetwork` is the bare network: an event queue whose clock is the time of the event at its head. It
carries any object by reference. Without faults it delivers everything once and in order per pair; with
faults it does to each payload what the faults say, so that machines meet duplicates and overtaking
directly.

`ReliableVirtualNetwork` has the same interface and puts the framing of real deployments between the
machines and the bare network, one `Endpoint` per life of a party, with retransmission on virtual time: lost
and damaged datagrams are repaired, and every payload arrives once and in order, or comes back as
`Undelivered`. `simulated_network` chooses: framing where something can be lost, the bare network elsewhere.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.outcomes import Failed
from veilsum.transport.memory.faults import PUNCTUAL, Dice, Faults

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer
    from veilsum.transport.errors import TransportError
    from veilsum.transport.limits import Limits

LATENCY_S = 0.01


@dataclass(frozen=True, slots=True)
class Delivery:
    """A payload has arrived."""

    time: float
    sender: Address
    receiver: Address
    payload: object


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer of a party has run out; `token` is what the party gave it."""

    time: float
    party: Address
    token: object


@dataclass(frozen=True, slots=True)
class Crashed:
    """A party has lost its memory and its timers; what arrives before it returns is lost too."""

    time: float
    party: Address


@dataclass(frozen=True, slots=True)
class Returned:
    """A crashed party may start afresh."""

    time: float
    party: Address


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The sender of a payload has given up on it."""

    time: float
    sender: Address
    receiver: Address
    payload: object
    error: TransportError


NetworkEvent: TypeAlias = Delivery | TimerDue | Crashed | Returned | Undelivered


class VirtualNetwork:
    """A network without framing: what the faults take is gone."""

    def __init__(self, faults: Faults | None = None, seed: int = 0, latency_s: float = LATENCY_S) -> None:
        self.faults = faults or Faults()
        self.dice = Dice(self.faults, seed)
        self._latency_s = latency_s
        self._queue: list[tuple[float, int, int, NetworkEvent]] = []
        self._order = 0
        self._crashes: Counter[Address] = Counter()
        self._last_arrival: dict[tuple[Address, Address], float] = {}
        self._flawless = self.faults == Faults()
        for crash in self.faults.crashes:
            self._schedule(Crashed(crash.at, crash.party))
            if crash.back_at is not None:
                self._schedule(Returned(crash.back_at, crash.party))

    def send(self, now: float, sender: Address, receiver: Address, payload: object) -> None:
        """Send a payload on its way; it is passed by reference and must not change any more."""
        if self._flawless:
            arrivals = PUNCTUAL
        elif self.faults.is_down(sender, now) or self.faults.separate(now, sender, receiver):
            return
        else:
            arrivals = self.dice.arrivals()
        pair = (sender, receiver)
        for arrival in arrivals:
            time = now + self._latency_s + arrival.extra_delay_s
            if not arrival.overtakes:
                time = self._last_arrival[pair] = max(time, self._last_arrival.get(pair, 0.0))
            if not arrival.corrupted:
                self._schedule(Delivery(time, sender, receiver, payload))
            elif isinstance(payload, bytes | bytearray | memoryview):
                self._schedule(Delivery(time, sender, receiver, self.dice.damaged(payload)))

    def set_timer(self, at: float, party: Address, token: object = None) -> None:
        """Wake a party at a time, unless it crashes before; timers are not cancelled but ignored."""
        self._schedule(TimerDue(at, party, token))

    def next_event_time(self) -> float | None:
        return self._queue[0][0] if self._queue else None

    def pop_due(self, now: float) -> list[NetworkEvent]:
        """Everything that has happened up to `now`, in order."""
        due: list[NetworkEvent] = []
        while self._queue and self._queue[0][0] <= now:
            event = self.pop_next()
            if event is not None:
                due.append(event)
        return due

    def pop_next(self) -> NetworkEvent | None:
        """The event at the head of the queue, or None if its party does not live to see it."""
        _, _, crashes_before, event = heapq.heappop(self._queue)
        if isinstance(event, Delivery):
            return None if self.faults.is_down(event.receiver, event.time) else event
        if isinstance(event, TimerDue):
            return event if self._crashes[event.party] == crashes_before else None
        if isinstance(event, Crashed):
            self._crashes[event.party] += 1
        return event

    def _schedule(self, event: NetworkEvent) -> None:
        self._order += 1
        crashes = self._crashes[event.party] if isinstance(event, TimerDue) else 0
        heapq.heappush(self._queue, (event.time, self._order, crashes, event))


_FRAMING = object()
"""The token of timers that belong to the framing and not to the simulation."""

_AS_BYTES, _BY_REFERENCE = b"b", b"r"


class ReliableVirtualNetwork:
    """The same network with framing: once, intact and in order, or `Undelivered` after `give_up_s`.

    A payload that is a buffer, or a list or tuple of buffers, travels as bytes and arrives as a memoryview.
    Any other object is carried by reference: its frame holds a ticket, meets every fault, and is exchanged
    for the object on arrival.
    """

    def __init__(
        self,
        faults: Faults | None = None,
        seed: int = 0,
        latency_s: float = LATENCY_S,
        limits: Limits | None = None,
        give_up_s: float = 3600.0,
    ) -> None:
        self._network = VirtualNetwork(faults, seed, latency_s)
        self.faults = self._network.faults
        self._limits = limits
        self._give_up_s = give_up_s
        self._endpoints: dict[Address, Endpoint] = {}
        self._armed: dict[Address, float] = {}
        self._pending: dict[tuple[Address, Address, int], tuple[int, object]] = {}
        self._tickets: dict[int, object] = {}
        self._next_ticket = 0
        self._happened: list[NetworkEvent] = []

    def send(self, now: float, sender: Address, receiver: Address, payload: object) -> None:
        """Send a payload on its way; it must not change any more. A party that is down sends nothing."""
        if self.faults.is_down(sender, now):
            return
        self._next_ticket += 1
        buffers = _as_buffers(payload)
        if buffers is None:
            self._tickets[self._next_ticket] = payload
            frame: list[Buffer] = [_BY_REFERENCE, self._next_ticket.to_bytes(8, "big")]
        else:
            frame = [_AS_BYTES, *buffers]
        number = self._endpoint(sender).send(receiver, frame, now + self._give_up_s)
        self._pending[sender, receiver, number] = (self._next_ticket, payload)
        self._pump(now, sender)

    def set_timer(self, at: float, party: Address, token: object = None) -> None:
        """Wake a party at a time, unless it crashes before; timers are not cancelled but ignored."""
        self._network.set_timer(at, party, token)

    def next_event_time(self) -> float | None:
        return self._network.next_event_time()

    def pop_due(self, now: float) -> list[NetworkEvent]:
        """Everything that has happened up to `now`, in order; nothing when only framing was at work."""
        while (time := self._network.next_event_time()) is not None and time <= now:
            event = self._network.pop_next()
            if event is not None:
                self._handle(event)
        happened, self._happened = self._happened, []
        return happened

    def _handle(self, event: NetworkEvent) -> None:
        if isinstance(event, Delivery):
            assert isinstance(event.payload, bytes)
            self._endpoint(event.receiver).receive_datagram(event.sender, event.payload, event.time)
            self._pump(event.time, event.receiver)
        elif isinstance(event, TimerDue) and event.token is _FRAMING:
            if self._armed.get(event.party) == event.time:
                del self._armed[event.party]
                self._endpoint(event.party).handle_deadline(event.time)
                self._pump(event.time, event.party)
        else:
            if isinstance(event, Crashed):
                self._forget(event.party)
            self._happened.append(event)

    def _forget(self, party: Address) -> None:
        self._endpoints.pop(party, None)
        self._armed.pop(party, None)
        self._pending = {key: sent for key, sent in self._pending.items() if key[0] != party}

    def _endpoint(self, party: Address) -> Endpoint:
        endpoint = self._endpoints.get(party)
        if endpoint is None:
            life = self._network.dice.bytes(LIFE_BYTES)
            endpoint = self._endpoints[party] = Endpoint(party, life, self._limits)
        return endpoint

    def _pump(self, now: float, party: Address) -> None:
        """Carry what the endpoint of a party wants to say, both ways, and re-arm its timer."""
        endpoint = self._endpoints[party]
        while (delivered := endpoint.take()) is not None:
            payload = self._redeem(delivered.payload)
            self._happened.append(Delivery(now, delivered.sender, party, payload))
        while (outcome := endpoint.next_outcome()) is not None:
            ticket, payload = self._pending.pop((party, outcome.receiver, outcome.message))
            if isinstance(outcome, Failed):
                self._happened.append(Undelivered(now, party, outcome.receiver, payload, outcome.error))
            else:
                self._tickets.pop(ticket, None)
        while (datagram := endpoint.next_datagram(now)) is not None:
            self._network.send(now, party, *datagram)
        deadline = endpoint.next_deadline()
        if deadline is not None and deadline != self._armed.get(party):
            self._armed[party] = deadline
            self._network.set_timer(deadline, party, _FRAMING)

    def _redeem(self, frame: memoryview) -> object:
        if frame[:1] == _BY_REFERENCE:
            return self._tickets[int.from_bytes(frame[1:], "big")]
        return frame[1:]


def simulated_network(
    faults: Faults | None = None, seed: int = 0, latency_s: float = LATENCY_S
) -> VirtualNetwork | ReliableVirtualNetwork:
    """The network for a simulation: with framing where datagrams can be lost or damaged, bare elsewhere."""
    if faults is not None and faults.lose_datagrams:
        return ReliableVirtualNetwork(faults, seed, latency_s)
    return VirtualNetwork(faults, seed, latency_s)


def _as_buffers(payload: object) -> Sequence[Buffer] | None:
    if isinstance(payload, bytes | bytearray | memoryview):
        return [payload]
    if isinstance(payload, list | tuple) and all(
        isinstance(b, bytes | bytearray | memoryview) for b in payload
    ):
        return payload
    return None
