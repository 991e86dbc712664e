"""One set of conversation rules, two transports: memory and MQTT must keep the same promises.

Messages between parties arrive once, intact and in the order of sending per sender, whatever restarts and
interruptions lie between; a message to nobody fails with a typed error that names the receiver.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.brokers.broker import BrokerProcess, any_broker
from tests.support.tables.sealed_party import lines_of, mqtt_party
from veilsum.transport.base import Transport
from veilsum.transport.errors import Closed, Unreachable
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.limits import Limits
from veilsum.transport.memory.faults import Faults
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.reliable import FramedTransport

PARTIES = ("alice", "bob", "carol")
PATIENCE_S = 30.0
names = st.sampled_from(PARTIES)
pairs = st.tuples(names, names).filter(lambda pair: pair[0] != pair[1])
sizes = st.one_of(st.integers(0, 100), st.integers(0, 200_000))
SMALL = Limits(chunk_bytes=20_000, window_bytes=60_000, first_timeout_s=0.2, shortest_timeout_s=0.05)


class Conversation(RuleBasedStateMachine):
    """The rules and a model of what each party still has to hear; subclasses bring the transport."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.open: dict[str, Transport] = {}
        self.unheard: dict[tuple[str, str], deque[bytes]] = defaultdict(deque)
        self.sent = 0

    def make_transport(self, name: str) -> Transport:
        raise NotImplementedError

    def interrupt_links(self) -> None:
        raise NotImplementedError

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(asyncio.wait_for(work, 2 * PATIENCE_S))

    def payload(self, size: int) -> bytes:
        self.sent += 1
        return f"message {self.sent}:".encode() + bytes(size)

    @initialize()
    def everybody_arrives(self) -> None:
        for name in PARTIES:
            self.open[name] = self.wait_for(self.make_transport(name).__aenter__())

    @rule(batch=st.lists(st.tuples(pairs, sizes), min_size=1, max_size=5))
    def some_speak_at_once(self, batch: list[tuple[tuple[str, str], int]]) -> None:
        messages = [(pair, self.payload(size)) for pair, size in batch]

        async def speak() -> None:
            async with asyncio.TaskGroup() as tasks:
                for (sender, receiver), payload in messages:
                    tasks.create_task(
                        self.open[sender].send(receiver, [payload[:5], payload[5:]], PATIENCE_S)
                    )

        self.wait_for(speak())
        for pair, payload in messages:
            self.unheard[pair].append(payload)

    @precondition(lambda self: any(self.unheard.values()))
    @rule(data=st.data())
    def somebody_listens(self, data: st.DataObject) -> None:
        waiting = sorted({receiver for (_, receiver), queue in self.unheard.items() if queue})
        self.hear_one(data.draw(st.sampled_from(waiting)))

    def hear_one(self, receiver: str) -> None:
        received = self.wait_for(self.open[receiver].receive())
        assert bytes(received.payload) == self.unheard[received.sender_hint, receiver].popleft()

    @rule()
    def the_link_is_interrupted(self) -> None:
        self.interrupt_links()

    @rule(name=names)
    def somebody_restarts(self, name: str) -> None:
        """What it had not listened to is gone with its memory; what it says afterwards is heard."""
        self.wait_for(self.open[name].__aexit__(None, None, None))
        with pytest.raises(Closed):
            self.wait_for(self.open[name].send("bob", [b"too late"], PATIENCE_S))
        for pair in [pair for pair in self.unheard if pair[1] == name]:
            del self.unheard[pair]
        self.open[name] = self.wait_for(self.make_transport(name).__aenter__())

    @rule(name=names)
    def somebody_calls_nobody(self, name: str) -> None:
        with pytest.raises(Unreachable, match="dave") as caught:
            self.wait_for(self.open[name].send("dave", [b"are you there?"], deadline_s=0.05))
        assert caught.value.receiver == "dave"

    @invariant()
    def everybody_is_open(self) -> None:
        assert not self.open or set(self.open) == set(PARTIES)

    def teardown(self) -> None:
        try:
            while waiting := [receiver for (_, receiver), queue in self.unheard.items() if queue]:
                self.hear_one(waiting[0])
            for transport in self.open.values():
                with pytest.raises(TimeoutError):
                    self.runner.run(asyncio.wait_for(transport.receive(), 0.001))
        finally:
            for transport in self.open.values():
                self.wait_for(transport.__aexit__(None, None, None))
            self.runner.close()


class MemoryConversation(Conversation):
    """Over a switchboard that loses, doubles, reorders and damages."""

    def __init__(self) -> None:
        super().__init__()
        self.switchboard = Switchboard(Faults(drop=0.05, duplicate=0.1, reorder=0.1, corrupt=0.05), seed=7)
        self.lives = 0

    def make_transport(self, name: str) -> Transport:
        self.lives += 1
        endpoint = Endpoint(name, self.lives.to_bytes(8, "big"), SMALL, lines_of(name))
        return FramedTransport(self.switchboard.link(name), endpoint)

    def interrupt_links(self) -> None:
        self.switchboard.interrupt()


class MqttConversation(Conversation):
    """Over a real broker, which is killed and started again for an interruption."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__()
        self.broker = broker
        self.federation = f"conversation {id(self)}"

    def make_transport(self, name: str) -> Transport:
        return mqtt_party(self.broker.address("3.1.1"), name, federation=self.federation, limits=SMALL)

    def interrupt_links(self) -> None:
        self.broker.kill()
        self.broker.start()


@pytest.fixture
def own_broker(tmp_path) -> Iterator[BrokerProcess]:
    process = any_broker(tmp_path)
    process.start()
    yield process
    process.stop()


def rules(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_the_rules_hold_in_memory() -> None:
    run_state_machine_as_test(MemoryConversation, settings=rules(8, 12))


def test_the_rules_hold_over_mqtt(own_broker: BrokerProcess) -> None:
    run_state_machine_as_test(lambda: MqttConversation(own_broker), settings=rules(3, 8))


@pytest.mark.long
def test_the_rules_hold_in_memory_for_long() -> None:
    run_state_machine_as_test(MemoryConversation, settings=rules(200, 30))


@pytest.mark.long
def test_the_rules_hold_over_mqtt_for_long(own_broker: BrokerProcess) -> None:
    run_state_machine_as_test(lambda: MqttConversation(own_broker), settings=rules(25, 20))
