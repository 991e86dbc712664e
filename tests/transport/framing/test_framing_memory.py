"""What a sender makes a receiver allocate grows with the bytes that it sent, whatever it announced."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables.framing_table import TINY, introduced_member
from tests.transport.framing.test_framing_situations import drain, introduce, keyed, life
from veilsum.transport.framing.datagrams import Chunk
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.incoming import MOST_CHUNKS_AHEAD, Incoming
from veilsum.transport.limits import KIB, MIB, Limits
from veilsum.transport.lines.datagrams import PROBE

LIFE = bytes(7) + b"\1"


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("index", [0, 1, 65_535])
def test_one_small_chunk_of_the_largest_message_occupies_little_more_than_itself(index: int) -> None:
    """A chunk of 8 KiB that announces 512 MiB allocates a few KiB, and the sender's next message still arrives."""
    limits = Limits()
    b = Incoming(limits)
    chunk = Chunk(LIFE, 1, 0, 0, limits.max_message_bytes, 8 * KIB, index)
    body = bytes(chunk.body_size)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    assert b.receive_chunk(chunk, body) == []
    assert tracemalloc.get_traced_memory()[1] - before < 64 * KIB
    assert b.receive_chunk(Chunk(LIFE, 1, 1, 1, 5, 16, 0), b"hello") == [b"hello"]


@pytest.mark.usefixtures("traced")
def test_a_message_in_order_is_put_together_in_little_more_than_its_own_size() -> None:
    b = Incoming(Limits())
    before = tracemalloc.get_traced_memory()[0]
    for index in range(32):
        ready = b.receive_chunk(Chunk(LIFE, 1, 0, 0, 8 * MIB, 256 * KIB, index), bytes([index]) * (256 * KIB))
        arrived = (index + 1) * 256 * KIB
        assert tracemalloc.get_traced_memory()[0] - before < 1.25 * arrived + 64 * KIB
    assert [bytes(message) for message in ready] == [b"".join(bytes([i]) * (256 * KIB) for i in range(32))]


def test_small_chunks_that_wait_for_one_before_them_are_bounded_in_number() -> None:
    """One byte in a chunk of its own costs far more than a byte: beyond a number they are dropped, and come again."""
    b = Incoming(Limits())
    count = MOST_CHUNKS_AHEAD + 100
    for index in range(1, count):
        b.receive_chunk(Chunk(LIFE, 1, 0, 0, count, 1, index), b"x")
    assert b.state(64 * KIB).bitmaps[0].bit_count() == MOST_CHUNKS_AHEAD
    ready = b.receive_chunk(Chunk(LIFE, 1, 0, 0, count, 1, 0), b"x")
    for index in range(MOST_CHUNKS_AHEAD, count):
        ready += b.receive_chunk(Chunk(LIFE, 1, 0, 0, count, 1, index), b"x")
    assert [bytes(message) for message in ready] == [b"x" * count]


@given(st.permutations(range(12)), st.integers(1, 7), st.integers(1, 7))
def test_chunks_in_any_order_give_the_message(order: list[int], size: int, last: int) -> None:
    payload = bytes(range(11 * size + min(last, size)))
    b = Incoming(Limits())
    ready = [
        message
        for index in order
        for message in b.receive_chunk(
            Chunk(LIFE, 1, 0, 0, len(payload), size, index), payload[index * size : (index + 1) * size]
        )
    ]
    assert [bytes(message) for message in ready] == [payload]


@pytest.mark.usefixtures("traced")
def test_a_member_that_announces_much_in_many_messages_holds_up_nobody() -> None:
    """256 messages of 2 MiB, each begun with one chunk: a few KiB each, and the message of another member arrives."""
    b, a = Endpoint("b", bytes(7) + b"\2"), Endpoint("a", bytes(7) + b"\3")
    member = introduced_member(b, "m")
    before = tracemalloc.get_traced_memory()[0]
    for number in range(256):
        fields = Chunk(LIFE, number, number, 0, 2 * MIB, 4 * KIB, 0).fields()
        for datagram in member.carry("b", fields, bytes(4 * KIB), 0.0):
            b.receive_datagram("m", datagram, 0.0)
    assert b.held_bytes("m") > 500 * MIB, "so much was announced"
    assert tracemalloc.get_traced_memory()[0] - before < 3 * MIB
    a.send("b", [b"hello"], give_up_at=9.0)
    for _ in range(3):
        for sender, receiver in ((a, b), (b, a)):
            while (item := sender.next_datagram(0.0)) is not None:
                if item[0] == receiver.address:
                    receiver.receive_datagram(sender.address, item[1], 0.0)
    delivered = b.take()
    assert delivered is not None
    assert (delivered.sender, bytes(delivered.payload)) == ("a", b"hello")


def half_arrived() -> tuple[Endpoint, Endpoint]:
    """A sender, and who has two chunks of it."""
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [bytes(300)], give_up_at=1e6)
    introduce(a, b)
    for datagram in drain(a)[:2]:
        b.receive_datagram("a", datagram, 0.0)
    drain(b)
    return a, b


def test_memory_of_a_sender_that_vanished_is_given_back() -> None:
    _, b = half_arrived()
    assert b.held_bytes("a") > 300
    assert b.next_deadline() == TINY.idle_s
    b.handle_deadline(TINY.idle_s)
    assert b.held_bytes("a") == 0
    assert b.next_deadline() is None


def test_a_sender_whose_chunks_get_lost_keeps_what_arrived_as_long_as_it_is_heard_asking() -> None:
    """Forgetting it would make the sender repeat what it takes to have arrived, and no faster than it is forgotten."""
    a, b = half_arrived()
    held = b.held_bytes("a")
    for now in (0.75 * TINY.idle_s, 1.5 * TINY.idle_s):
        a.link_restored()
        (asking,) = drain(a, now)
        assert asking[3] == PROBE
        b.receive_datagram("a", asking, now)
        drain(b)
        b.handle_deadline(now)
        assert b.held_bytes("a") == held
    b.handle_deadline(2.5 * TINY.idle_s)
    assert b.held_bytes("a") == 0
