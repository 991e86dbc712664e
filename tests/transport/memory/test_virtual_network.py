"""Networks on virtual time: order, determinism, faults, and repair."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.transport.errors import Unreachable
from veilsum.transport.memory.faults import Crash, Faults, Partition
from veilsum.transport.memory.network import (
    Crashed,
    Delivery,
    NetworkEvent,
    ReliableVirtualNetwork,
    Returned,
    TimerDue,
    Undelivered,
    VirtualNetwork,
    simulated_network,
)

Network = VirtualNetwork | ReliableVirtualNetwork
both_kinds = pytest.mark.parametrize("make", [VirtualNetwork, ReliableVirtualNetwork])
ROUGH = Faults(drop=0.2, duplicate=0.2, reorder=0.3, delay=0.1, corrupt=0.1)


def run(network: Network) -> list[NetworkEvent]:
    events: list[NetworkEvent] = []
    while (time := network.next_event_time()) is not None:
        events += network.pop_due(time)
    return events


def payloads(events: list[NetworkEvent], sender: str, receiver: str) -> list[object]:
    return [
        e.payload for e in events if isinstance(e, Delivery) and (e.sender, e.receiver) == (sender, receiver)
    ]


def readable(events: list[NetworkEvent]) -> list[object]:
    return [
        bytes(e.payload) if isinstance(e, Delivery) and isinstance(e.payload, memoryview) else e
        for e in events
    ]


@both_kinds
def test_without_faults_everything_arrives_once_and_in_order_per_pair(make: Callable[[], Network]) -> None:
    network = make()
    for number in range(10):
        network.send(number * 0.001, "a", "b", ("to b", number))
        network.send(number * 0.001, "a", "c", ("to c", number))
    events = run(network)
    assert payloads(events, "a", "b") == [("to b", number) for number in range(10)]
    assert payloads(events, "a", "c") == [("to c", number) for number in range(10)]


@both_kinds
def test_objects_are_passed_by_reference(make: Callable[[], Network]) -> None:
    network, payload = make(), {"an": object()}
    network.send(0.0, "a", "b", payload)
    (event,) = run(network)
    assert isinstance(event, Delivery)
    assert event.payload is payload


@both_kinds
def test_timers_and_deliveries_come_in_the_order_of_time(make: Callable[[], Network]) -> None:
    network = make()
    network.set_timer(3600.0, "a", "an hour later")
    network.set_timer(0.001, "b", "soon")
    network.send(0.0, "a", "b", "payload")
    events = run(network)
    assert [type(event) for event in events] == [TimerDue, Delivery, TimerDue]
    assert [event.time for event in events] == sorted(event.time for event in events)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_one_seed_one_history(seed: int) -> None:
    def history(make: Callable[[Faults, int], Network]) -> list[object]:
        network = make(ROUGH, seed)
        for number in range(12):
            network.send(number * 0.05, "a", "b", bytes([number]) * 20)
            network.send(number * 0.05, "b", "a", number)
        return readable(run(network))

    for make in (VirtualNetwork, ReliableVirtualNetwork):
        assert history(make) == history(make)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_framing_repairs_whatever_the_bare_network_loses_or_damages(seed: int) -> None:
    network = ReliableVirtualNetwork(ROUGH, seed)
    for number in range(12):
        network.send(0.0, "a", "b", number if number % 2 else bytes([number]) * 5000)
    got = payloads(run(network), "a", "b")
    expected = [number if number % 2 else bytes([number]) * 5000 for number in range(12)]
    assert [bytes(item) if isinstance(item, memoryview) else item for item in got] == expected


def test_the_bare_network_does_what_the_faults_say() -> None:
    def arrivals(**faults: float) -> list[object]:
        network = VirtualNetwork(Faults(**faults), seed=1)
        for number in range(100):
            network.send(number * 0.01, "a", "b", bytes([number]))
        return payloads(run(network), "a", "b")

    straight = [bytes([number]) for number in range(100)]
    assert arrivals() == straight
    assert 0 < len(arrivals(drop=0.3)) < 100
    assert len(arrivals(duplicate=1.0)) == 200
    assert arrivals(delay=0.5) == straight, "delay alone keeps the order of a pair"
    assert arrivals(reorder=0.5) != straight
    assert sorted(arrivals(reorder=0.5)) == straight
    assert arrivals(corrupt=1.0) != straight


@both_kinds
def test_a_crashed_party_hears_nothing_and_loses_its_timers(make: Callable[[Faults], Network]) -> None:
    network = make(Faults(crashes=(Crash("b", at=1.0, back_at=2.0),)))
    network.set_timer(1.5, "b", "during")
    network.set_timer(3.0, "b", "set before the crash")
    network.send(0.5, "a", "b", "before")
    before = network.pop_due(1.2)
    assert [type(event) for event in before] == [Delivery, Crashed]
    network.send(1.2, "b", "a", "a party that is down sends nothing")
    after = network.pop_due(2.0)
    assert after == [Returned(2.0, "b")]
    network.set_timer(9.5, "b", "after")
    network.send(2.1, "a", "b", "back again")
    assert [getattr(e, "payload", getattr(e, "token", None)) for e in run(network)] == ["back again", "after"]


def test_a_message_sent_while_the_receiver_is_down_arrives_when_it_is_back() -> None:
    network = simulated_network(Faults(crashes=(Crash("b", at=1.0, back_at=30.0),)))
    network.pop_due(1.0)
    network.send(1.0, "a", "b", "patience")
    (returned, delivery) = run(network)
    assert isinstance(returned, Returned)
    assert isinstance(delivery, Delivery)
    assert 30.0 <= delivery.time < 36.0


def test_a_partition_delays_and_does_not_lose() -> None:
    faults = Faults(partitions=(Partition((frozenset("a"), frozenset("b")), 0.0, 20.0),))
    network = simulated_network(faults)
    network.send(0.0, "a", "b", "across")
    network.send(0.0, "a", "c", "beside")
    across, beside = sorted(run(network), key=lambda event: event.time, reverse=True)
    assert isinstance(across, Delivery)
    assert across.payload == "across"
    assert across.time >= 20.0
    assert beside.time < 1.0


def test_a_sender_learns_what_could_not_be_delivered() -> None:
    network = ReliableVirtualNetwork(Faults(drop=1.0), give_up_s=60.0)
    network.send(5.0, "a", "b", "in vain")
    (event,) = run(network)
    assert isinstance(event, Undelivered)
    assert (event.time, event.payload) == (65.0, "in vain")
    assert isinstance(event.error, Unreachable)


def test_framing_is_used_exactly_where_something_can_be_lost() -> None:
    assert isinstance(simulated_network(), VirtualNetwork)
    assert isinstance(simulated_network(Faults(duplicate=0.5, reorder=0.5)), VirtualNetwork)
    for faults in (Faults(drop=0.1), Faults(corrupt=0.1), Faults(crashes=(Crash("a", 1.0),))):
        assert isinstance(simulated_network(faults), ReliableVirtualNetwork)
