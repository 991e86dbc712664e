"""Whatever the link does: every message arrives once, intact and in order, or its sender is told in time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables.framing_table import TINY, FramingTable
from veilsum.transport.errors import Unreachable
from veilsum.transport.memory.faults import Faults

PARTIES = "abc"
pairs = st.tuples(st.sampled_from(PARTIES), st.sampled_from(PARTIES)).filter(lambda pair: pair[0] != pair[1])
sizes = st.integers(0, TINY.max_message_bytes - 20)
messages = st.lists(st.tuples(pairs, sizes), max_size=12)
seeds = st.integers(0, 2**32 - 1)
mild_faults = st.builds(
    Faults,
    drop=st.floats(0, 0.4),
    duplicate=st.floats(0, 0.5),
    reorder=st.floats(0, 0.5),
    delay=st.floats(0, 0.5),
    corrupt=st.floats(0, 0.3),
)
heavy_faults = st.builds(
    Faults, drop=st.floats(0, 1), duplicate=st.floats(0, 1), reorder=st.floats(0, 1), corrupt=st.floats(0, 1)
)

unhurried = settings(deadline=None, max_examples=60)


def unique(number: int, size: int) -> bytes:
    return f"message {number}:".encode() + bytes((number + i) % 251 for i in range(size))


@unhurried
@given(faults=mild_faults, seed=seeds, batch=messages)
def test_patient_senders_deliver_everything_once_and_in_order(faults, seed, batch) -> None:
    table = FramingTable(faults, seed)
    for number, ((sender, receiver), size) in enumerate(batch):
        table.send(sender, receiver, unique(number, size))
    table.run()
    for pair in {pair for pair, _ in batch}:
        sent = [unique(number, size) for number, (other, size) in enumerate(batch) if other == pair]
        assert table.got[pair] == sent == table.acknowledged[pair]
    assert not table.failed


@unhurried
@given(faults=heavy_faults, seed=seeds, batch=messages, patience=st.floats(0.01, 30))
def test_every_message_is_acknowledged_or_fails_with_a_typed_error_by_its_deadline(
    faults, seed, batch, patience
) -> None:
    table = FramingTable(faults, seed)
    for number, ((sender, receiver), size) in enumerate(batch):
        table.send(sender, receiver, unique(number, size), give_up_s=patience)
    table.run()
    assert not table.waiting
    assert all(isinstance(error, Unreachable) and error.receiver == to for _, to, _, error in table.failed)
    for pair in {pair for pair, _ in batch}:
        sent = [unique(number, size) for number, (other, size) in enumerate(batch) if other == pair]
        got = table.got[pair]
        assert [message for message in sent if message in got] == got, "once each, in order, unchanged"
        assert set(table.acknowledged[pair]) <= set(got), "acknowledged means delivered"


restarts = st.lists(st.tuples(st.floats(0, 5), st.sampled_from(PARTIES)), max_size=4)


@unhurried
@given(faults=mild_faults, seed=seeds, batch=messages, restarts=restarts)
def test_lives_never_mix_when_parties_restart_at_any_time(faults, seed, batch, restarts) -> None:
    table = FramingTable(faults, seed)
    for number, ((sender, receiver), size) in enumerate(batch):
        table.send(sender, receiver, unique(number, size))
    for time, party in sorted(restarts):
        table.run(until=max(time, table.now))
        table.restart(party)
        for other in PARTIES:
            if other != party:
                table.send(party, other, unique(1000 + table.lives, 100))
    table.run()
    assert not table.waiting, "everything that a living sender waits for was acknowledged"
    known = {unique(number, size) for number, (_, size) in enumerate(batch)}
    known |= {unique(1000 + life, 100) for life in range(table.lives + 1)}
    restarted = {party for _, party in restarts}
    for (_, receiver), got in table.got.items():
        assert set(got) <= known, "no message is a mixture"
        assert receiver in restarted or len(set(got)) == len(got), "once per life of the receiver"
    for pair, acknowledged in table.acknowledged.items():
        assert set(acknowledged) <= set(table.got[pair])


@unhurried
@given(faults=mild_faults, seed=seeds, batch=messages)
def test_an_application_that_does_not_take_messages_costs_bounded_memory_and_loses_nothing(
    faults, seed, batch
) -> None:
    table = FramingTable(faults, seed)
    table.greedy = False
    for number, ((sender, receiver), size) in enumerate(batch):
        table.send(sender, receiver, unique(number, size))
    table.run(until=30.0)
    table.greedy = True
    for party in list(table.endpoints):
        table.pump(party)
    table.run()
    for pair in {pair for pair, _ in batch}:
        sent = [unique(number, size) for number, (other, size) in enumerate(batch) if other == pair]
        assert table.got[pair] == sent
