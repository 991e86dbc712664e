"""Endpoints around a table: a network on virtual time under them, and a book of what they sent and got."""

from __future__ import annotations

from collections import defaultdict

from veilsum.transport.framing.datagrams import Probe
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.incoming import MESSAGE_OVERHEAD
from veilsum.transport.framing.outcomes import Acknowledged, Failed
from veilsum.transport.limits import Limits
from veilsum.transport.lines.book import LineBook
from veilsum.transport.lines.datagrams import ACCEPT, CONFIRM, OPEN
from veilsum.transport.lines.line import LineLimits
from veilsum.transport.lines.plain import PlainCrypto
from veilsum.transport.memory.faults import Faults
from veilsum.transport.memory.network import Delivery, TimerDue, VirtualNetwork

TINY = Limits(
    chunk_bytes=16,
    window_bytes=64,
    max_message_bytes=400,
    most_open_messages=8,
    first_timeout_s=0.1,
    shortest_timeout_s=0.05,
    longest_timeout_s=1.0,
    idle_s=20.0,
)


class FramingTable:
    """Drives endpoints over a faulty network and notes what becomes of every message.

    Messages are unique per pair, so that a lost, doubled, mixed or damaged one shows.
    """

    def __init__(self, faults: Faults | None = None, seed: int = 0, limits: Limits = TINY) -> None:
        self.limits = limits
        self.network = VirtualNetwork(faults, seed)
        self.now = 0.0
        self.endpoints: dict[str, Endpoint] = {}
        self.lives = 0
        self.got: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.waiting: dict[tuple[str, str, int], tuple[bytes, float]] = {}
        self.acknowledged: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.failed: list[tuple[str, str, bytes, Exception]] = []
        self.greedy = True
        self._armed: dict[str, float] = {}

    def endpoint(self, party: str) -> Endpoint:
        if party not in self.endpoints:
            self.restart(party)
        return self.endpoints[party]

    def restart(self, party: str) -> None:
        """A party loses everything it knew; what it was sending is nobody's business any more."""
        self.lives += 1
        self.endpoints[party] = Endpoint(party, self.lives.to_bytes(8, "big"), self.limits)
        self.waiting = {key: sent for key, sent in self.waiting.items() if key[0] != party}

    def send(self, sender: str, receiver: str, payload: bytes, give_up_s: float = 1e6) -> None:
        give_up_at = self.now + give_up_s
        number = self.endpoint(sender).send(receiver, [payload], give_up_at)
        self.waiting[sender, receiver, number] = (payload, give_up_at)
        self.pump(sender)

    def run(self, until: float = float("inf")) -> None:
        """Let time pass until nothing happens any more, or until a time."""
        while (time := self.network.next_event_time()) is not None and time <= until:
            event = self.network.pop_next()
            self.now = time
            if isinstance(event, Delivery):
                assert isinstance(event.payload, bytes)
                self.endpoint(event.receiver).receive_datagram(event.sender, event.payload, self.now)
                self.pump(event.receiver)
            elif isinstance(event, TimerDue) and self._armed.get(event.party) == self.now:
                del self._armed[event.party]
                self.endpoint(event.party).handle_deadline(self.now)
                self.pump(event.party)
        if until != float("inf"):
            self.now = until

    def pump(self, party: str) -> None:
        endpoint = self.endpoint(party)
        self._require_bounded_memory(endpoint)
        while self.greedy and (delivered := endpoint.take()) is not None:
            self.got[delivered.sender, party].append(bytes(delivered.payload))
        while (outcome := endpoint.next_outcome()) is not None:
            payload, give_up_at = self.waiting.pop((party, outcome.receiver, outcome.message))
            if isinstance(outcome, Acknowledged):
                self.acknowledged[party, outcome.receiver].append(payload)
            else:
                assert isinstance(outcome, Failed)
                assert self.now <= give_up_at
                self.failed.append((party, outcome.receiver, payload, outcome.error))
        while (datagram := endpoint.next_datagram(self.now)) is not None:
            self.network.send(self.now, party, *datagram)
        deadline = endpoint.next_deadline()
        if deadline is not None and deadline != self._armed.get(party):
            self._armed[party] = deadline
            self.network.set_timer(deadline, party)

    def _require_bounded_memory(self, endpoint: Endpoint) -> None:
        for sender in self.endpoints:
            share = self.limits.max_message_bytes + self.limits.most_open_messages * MESSAGE_OVERHEAD
            assert endpoint.held_bytes(sender) <= 2 * share


def introduced_member(receiver: Endpoint, name: str) -> LineBook:
    """The lines of a member, both ways with the receiver, without the framing that would hold it to limits."""
    member, fields = (
        LineBook(PlainCrypto(name, name.encode()), LineLimits()),
        Probe(b"lifetime", 1, 0).fields(),
    )
    for _ in range(3):
        for datagram in member.ask(receiver.address, fields, 0.0, timed_out=False):
            receiver.receive_datagram(name, datagram, 0.0)
        while (item := receiver.next_datagram(0.0)) is not None:
            view = memoryview(item[1])
            if view[3] == OPEN and (accept := member.hear_open(receiver.address, view, 0.0)) is not None:
                receiver.receive_datagram(name, accept, 0.0)
            elif view[3] == ACCEPT:
                member.hear_accept(receiver.address, view, 0.0)
            elif view[3] == CONFIRM:
                member.hear_confirm(receiver.address, view)
    return member
