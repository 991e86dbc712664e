"""Whatever a broker does: no key meets a nonce twice, no message comes twice, and delivery goes on when it stops.

Hypothesis plays a broker that keeps everything it ever carried: it delivers in any order, loses, holds back, plays
back to anybody, and floods with old `open`s, while parties start anew and time passes. The parties have the
identities and lines of real ones, whose lines wear out after a few boxes.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.tables.sealed_party import lines_of
from veilsum.protocol.crypto.aead import watch_seals
from veilsum.simulations.run.invariants import SealRecorder
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.outcomes import Acknowledged
from veilsum.transport.limits import Limits
from veilsum.transport.lines.datagrams import OPEN
from veilsum.transport.lines.line import LineLimits

PARTIES = ("alice", "bob", "carol")
LIMITS = Limits(
    chunk_bytes=16,
    window_bytes=64,
    max_message_bytes=400,
    first_timeout_s=0.1,
    shortest_timeout_s=0.05,
    longest_timeout_s=1.0,
    lines=LineLimits(most_boxes=12, ask_again_s=0.1),
)
NEVER = 1e9
names = st.sampled_from(PARTIES)
choices = st.integers(0, 2**16)


class BrokerThatKeepsEverything(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.seals = SealRecorder()
        self.watching = contextlib.ExitStack()
        self.watching.enter_context(watch_seals(self.seals))
        self.now = 0.0
        self.lives = 0
        self.endpoints: dict[str, Endpoint] = {}
        self.flying: list[tuple[str, str, bytes]] = []
        self.recorded: list[tuple[str, str, bytes]] = []
        self.waiting: dict[tuple[str, str, int], bytes] = {}
        self.sent = 0
        self.heard: dict[str, list[bytes]] = defaultdict(list)
        self.heard_ever: set[tuple[str, bytes]] = set()

    @initialize()
    def sit_down(self) -> None:
        for name in PARTIES:
            self.restart(name)

    @rule(name=names)
    def restart(self, name: str) -> None:
        """A party loses all it knew, on disk and in memory, and comes back."""
        self.lives += 1
        self.endpoints[name] = Endpoint(name, self.lives.to_bytes(8, "big"), LIMITS, lines_of(name))
        self.waiting = {key: text for key, text in self.waiting.items() if key[0] != name}
        self.heard[name] = []

    @rule(sender=names, receiver=names, size=st.integers(0, 60))
    def send(self, sender: str, receiver: str, size: int) -> None:
        if sender == receiver:
            return
        self.sent += 1
        text = f"{self.sent} from {sender}".encode() + bytes(size)
        number = self.endpoints[sender].send(receiver, [text], NEVER)
        self.waiting[sender, receiver, number] = text
        self.pump(sender)

    @precondition(lambda self: self.flying)
    @rule(which=choices)
    def deliver(self, which: int) -> None:
        self.carry(*self.flying.pop(which % len(self.flying)))

    @rule()
    def deliver_all_in_order(self) -> None:
        for _ in range(50):
            if not self.flying:
                return
            self.carry(*self.flying.pop(0))

    @precondition(lambda self: self.flying)
    @rule(which=choices)
    def lose(self, which: int) -> None:
        self.flying.pop(which % len(self.flying))

    @precondition(lambda self: self.recorded)
    @rule(which=choices, again=st.integers(1, 3))
    def play_back(self, which: int, again: int) -> None:
        for _ in range(again):
            self.carry(*self.recorded[which % len(self.recorded)])

    @precondition(lambda self: self.recorded)
    @rule(which=choices, receiver=names, claimed=names)
    def redirect(self, which: int, receiver: str, claimed: str) -> None:
        self.carry(claimed, receiver, self.recorded[which % len(self.recorded)][2])

    @rule(receiver=names)
    def play_back_all_opens(self, receiver: str) -> None:
        """What pushed the present line out in protocol version 1."""
        for sender, meant, datagram in self.recorded:
            if meant == receiver and datagram[3] == OPEN:
                self.now += 0.3
                self.carry(sender, receiver, datagram)

    @rule(seconds=st.floats(0.01, 3.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for name in PARTIES:
            self.endpoints[name].handle_deadline(self.now)
            self.pump(name)

    def carry(self, sender: str, receiver: str, datagram: bytes) -> None:
        self.endpoints[receiver].receive_datagram(sender, datagram, self.now)
        self.pump(receiver)

    def pump(self, name: str) -> None:
        endpoint = self.endpoints[name]
        while (delivered := endpoint.take()) is not None:
            text = bytes(delivered.payload)
            assert text not in self.heard[name], "no message comes twice in one life"
            assert f" from {delivered.sender}".encode() in text, "and none from another than its sender"
            self.heard[name].append(text)
            self.heard_ever.add((name, text))
        while (outcome := endpoint.next_outcome()) is not None:
            assert isinstance(outcome, Acknowledged)
            text = self.waiting.pop((name, outcome.receiver, outcome.message))
            assert (outcome.receiver, text) in self.heard_ever, "acknowledged means delivered"
        while (item := endpoint.next_datagram(self.now)) is not None:
            self.flying.append((name, *item))
            self.recorded.append((name, *item))

    @invariant()
    def no_key_meets_a_nonce_twice(self) -> None:
        self.seals.require_once()

    def teardown(self) -> None:
        """The network heals: all that living senders wait for arrives."""
        try:
            for _ in range(200):
                if not self.waiting:
                    break
                self.pass_time(0.5)
                while self.flying:
                    self.carry(*self.flying.pop(0))
            assert not self.waiting
            self.seals.require_once()
        finally:
            self.watching.close()


TestBrokerThatKeepsEverything = BrokerThatKeepsEverything.TestCase
TestBrokerThatKeepsEverything.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
