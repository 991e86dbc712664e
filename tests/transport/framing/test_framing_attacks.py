"""What a member with valid keys does to the framing of others: it may cost the member its messages, and nobody else."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables.framing_table import FramingTable, introduced_member
from veilsum.transport.errors import StateLost, TransportError, Unreachable
from veilsum.transport.framing.datagrams import (
    LARGEST_NUMBER,
    Ack,
    Chunk,
    Header,
    Probe,
    ReceiverState,
    chunk_count,
)
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.incoming import Incoming
from veilsum.transport.framing.outcomes import Acknowledged, Failed
from veilsum.transport.limits import MIB, MOST_BITMAP_BYTES, SMALLEST_CHUNK, SMALLEST_LINK_DATAGRAM, Limits
from veilsum.transport.lines.book import LineBook
from veilsum.transport.memory.faults import Faults
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.reliable import FramedTransport

LIFE = bytes(7) + b"\1"
EDGES = [0, 1, 2, 255, 2**32, 2**47, LARGEST_NUMBER - 1, LARGEST_NUMBER, 2**48, 2**63 - 1, 2**63, 2**64 - 1]


def party(name: str, limits: Limits | None = None) -> Endpoint:
    return Endpoint(name, name.encode().rjust(8, b"\0"), limits)


def drain(endpoint: Endpoint, now: float) -> list[tuple[str, bytes]]:
    out = []
    while (item := endpoint.next_datagram(now)) is not None:
        out.append(item)
    return out


def converse(a: Endpoint, b: Endpoint, now: float) -> None:
    """Until both have nothing to say to each other."""
    for _ in range(100):
        passed = 0
        for sender, receiver in ((a, b), (b, a)):
            for address, datagram in drain(sender, now):
                if address == receiver.address:
                    receiver.receive_datagram(sender.address, datagram, now)
                    passed += 1
        if not passed:
            return


def sealed(member: LineBook, header: Header, body: bytes) -> bytes:
    """A datagram for `b` on the member's line, whatever its fields say."""
    if isinstance(header, Ack):
        datagram = member.acknowledge("b", header.fields(), body)
        assert datagram is not None
        return datagram
    if isinstance(header, Probe):
        return list(member.ask("b", header.fields(), 0.0, timed_out=False))[-1]
    return list(member.carry("b", header.fields(), body, 0.0))[-1]


def wait(endpoint: Endpoint, until: float) -> list[tuple[str, bytes]]:
    """Let the timers of an endpoint run, and take what it wants sent."""
    out = drain(endpoint, 0.0)
    while (at := endpoint.next_deadline()) is not None and at <= until:
        endpoint.handle_deadline(at)
        out += drain(endpoint, at)
    return out


@pytest.mark.parametrize("large", [LARGEST_NUMBER + 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("field", range(4))
def test_a_number_that_cannot_be_counted_on_from_is_malformed_and_changes_nothing(
    field: int, large: int
) -> None:
    b = party("b")
    b.send("m", [b"x"], give_up_at=9.0)
    member = introduced_member(b, "m")
    numbers = [large if place == field else 0 for place in range(4)]
    before, held = b.counters.malformed, b.held_bytes("m")
    for header in (
        Chunk(LIFE, *numbers, 1, 0),
        Probe(LIFE, *(numbers[:2] if field < 2 else [large, 0])),
        Ack(LIFE, *(numbers[:2] if field < 2 else [0, large])),
    ):
        b.receive_datagram("m", sealed(member, header, b"x"), 0.0)
    assert b.counters.malformed == before + 3
    assert (b.held_bytes("m"), drain(b, 0.0)) == (held, [])


@pytest.mark.parametrize("top", EDGES)
def test_the_last_message_number_is_taken_in_or_dropped_and_the_receiver_goes_on(top: int) -> None:
    """The chunk that names one number as message and floor once ended its receiver, when that acknowledged it."""
    a, b = party("a"), party("b")
    member = introduced_member(b, "m")
    b.receive_datagram("m", sealed(member, Chunk(LIFE, 1, top, top, 1, 1, 0), b"x"), 0.0)
    wait(b, 1.0)
    assert b.counters.peers_dropped == 0
    assert (b.take() is not None) == (top <= LARGEST_NUMBER)
    a.send("b", [b"hello"], give_up_at=9.0)
    converse(a, b, 1.0)
    assert a.next_outcome() == Acknowledged("b", 0)


edges = st.sampled_from(EDGES)
lives = st.sampled_from([LIFE, b"lifetime", b"anotherl"])
small = st.sampled_from([0, 1, 2, 4095, 4096, 65535, 65536, 2**32 - 1])
headers: st.SearchStrategy[Header] = (
    st.builds(Chunk, lives, edges, edges, edges, edges, small, small)
    | st.builds(lambda life, top: Chunk(life, top, top, top, 1, 1, 0), lives, edges)
    | st.builds(Probe, lives, edges, edges)
    | st.builds(Ack, lives, edges, edges)
)
states = st.builds(
    lambda numbers, entries: (
        struct.pack(">QQQ", *numbers)
        + b"".join(struct.pack(">QH", number, len(bits)) + bits for number, bits in entries)
    ),
    st.tuples(edges, edges, edges),
    st.lists(st.tuples(edges, st.binary(max_size=4)), max_size=3),
)
bodies = states | st.binary(max_size=2) | st.just(b"x")


@settings(deadline=None)
@given(st.lists(st.tuples(headers, bodies), max_size=8))
def test_whatever_a_member_seals_the_writer_and_the_timers_compute_without_a_failure(
    script: list[tuple[Header, bytes]],
) -> None:
    """Acknowledgements, probes, repetitions and deadlines after any fields, and then an honest member is served."""
    a, b = party("a"), party("b", Limits(chunk_bytes=64, window_bytes=256))
    b.send("m", [bytes(1000)], give_up_at=20.0)
    member = introduced_member(b, "m")
    for header, body in script:
        b.receive_datagram("m", sealed(member, header, body), 0.0)
        drain(b, 0.0)
    wait(b, 30.0)
    outcome = b.next_outcome()
    assert isinstance(outcome, Acknowledged) or (
        isinstance(outcome, Failed) and isinstance(outcome.error, TransportError)
    )
    assert b.counters.peers_dropped == 0
    a.send("b", [b"hello"], give_up_at=99.0)
    converse(a, b, 31.0)
    assert a.next_outcome() == Acknowledged("b", 0)


def test_a_receiver_that_is_silent_for_days_costs_its_sender_probes_and_no_process() -> None:
    """The timeout once doubled until it was no number; one receiver that was away for 85 minutes ended its sender."""
    a, now, sent = party("a"), 0.0, 0
    give_up_at = 3 * 24 * 3600.0
    a.send("b", [b"invitation"], give_up_at)
    drain(a, now)
    while (at := a.next_deadline()) is not None:
        now = at
        a.handle_deadline(now)
        sent += len(drain(a, now))
    assert now == give_up_at
    assert sent > 1024, "it was asked again as often as a float can be doubled"
    outcome = a.next_outcome()
    assert isinstance(outcome, Failed) and isinstance(outcome.error, Unreachable)
    assert a.counters.peers_dropped == 0


class Broken(Incoming):
    """A state that does not compute, as a mistake of ours would leave it."""

    def state(self, most_bytes: int) -> ReceiverState:
        raise OverflowError("int too large to convert")


def test_what_fails_for_one_peer_costs_it_its_lines_and_what_was_under_way_and_nobody_else_anything() -> None:
    a, b, m = party("a"), party("b"), party("m")
    b.send("m", [b"to m"], give_up_at=90.0)
    b._incoming["m"] = Broken(b.limits)
    m.send("b", [b"from m"], give_up_at=90.0)
    for now in (0.0, 0.1):
        for _, datagram in drain(m, now):
            b.receive_datagram("m", datagram, now)
        for _, datagram in drain(b, now):
            m.receive_datagram("b", datagram, now)
    drain(b, 0.1)
    assert b.counters.peers_dropped == 1
    dropped, outcome = b.next_dropped(), b.next_outcome()
    assert dropped is not None and dropped.peer == "m" and isinstance(dropped.error, OverflowError)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, StateLost)
    a.send("b", [b"from a"], give_up_at=90.0)
    converse(a, b, 1.0)
    assert a.next_outcome() == Acknowledged("b", 0)
    b._incoming["m"].__class__ = Incoming
    number = b.send("m", [b"to m again"], give_up_at=90.0)
    for now in range(1, 30):
        m.handle_deadline(now)
        b.handle_deadline(now)
        converse(b, m, now)
    assert m.next_outcome() == Acknowledged("b", 0)
    assert b.next_outcome() == Acknowledged("m", number)
    assert [bytes(one.payload) for one in iter(b.take, None)] == [b"from a", b"from m"]
    assert [bytes(one.payload) for one in iter(m.take, None)] == [b"to m again"]


def test_a_transport_counts_whom_it_dropped_and_goes_on() -> None:
    async def scenario() -> None:
        board = Switchboard()
        endpoint = party("b")
        endpoint._incoming["m"] = Broken(endpoint.limits)
        async with (
            FramedTransport(board.link("b"), endpoint) as bob,
            FramedTransport(board.link("a"), party("a")) as alice,
            FramedTransport(board.link("m"), party("m")) as mallory,
        ):
            with pytest.raises(Unreachable):
                await mallory.send("b", [b"hello"], 2.0)
            assert bob.foreign.counts["peer"] >= 1
            await alice.send("b", [b"from a"], 30.0)
            assert bytes((await bob.receive()).payload) == b"from a"

    asyncio.run(scenario())


def begin_messages(b: Endpoint, member: LineBook, total: int, chunk_size: int) -> int:
    """As many messages as may be open, of each the last chunk only; how many bytes that took."""
    last = (total - 1) // chunk_size
    sent = 0
    for number in range(b.limits.most_open_messages):
        chunk = Chunk(LIFE, number, number + 1, 0, total, chunk_size, last)
        datagram = sealed(member, chunk, bytes(chunk.body_size))
        b.receive_datagram("m", datagram, 0.0)
        sent += len(datagram)
    return sent


def answer_to_a_probe(b: Endpoint, member: LineBook) -> bytes:
    drain(b, 0.0)
    b.receive_datagram("m", sealed(member, Probe(LIFE, 9999, 0), b""), 0.0)
    ((_, answer),) = drain(b, 0.0)
    return answer


@pytest.mark.parametrize("chunk_size", [1, 2, 255, SMALLEST_CHUNK - 1])
def test_a_message_cut_into_tiny_chunks_is_refused_and_states_nothing(chunk_size: int) -> None:
    """256 messages of one byte a chunk, the last of each, once made acknowledgements beyond the broker's limit."""
    b = party("b")
    member = introduced_member(b, "m")
    before = b.counters.malformed
    begin_messages(b, member, 65_536 * chunk_size, chunk_size)
    assert b.counters.malformed == before + b.limits.most_open_messages
    assert b.held_bytes("m") == 0
    assert len(answer_to_a_probe(b, member)) < 256


@pytest.mark.parametrize("largest", [SMALLEST_LINK_DATAGRAM, 20_000, 2 * MIB, None])
@pytest.mark.parametrize("chunks", [2, 100, 1000, 8000, 65_536])
def test_no_acknowledgement_is_larger_than_the_link_carries(chunks: int, largest: int | None) -> None:
    """However many chunks a member announces of how many messages; the first in turn is stated before the others."""
    b = party("b")
    b.limit_datagrams(largest)
    member = introduced_member(b, "m")
    begin_messages(b, member, chunks * SMALLEST_CHUNK, SMALLEST_CHUNK)
    answer = answer_to_a_probe(b, member)
    assert len(answer) + 256 <= min(largest or 2 * MIB, 2 * MOST_BITMAP_BYTES)
    stated = b._incoming["m"].state(SMALLEST_CHUNK).bitmaps
    assert list(stated) == list(range(1, len(stated) + 1))


@pytest.mark.parametrize("seed", range(5))
def test_messages_that_an_acknowledgement_leaves_out_come_again_and_arrive(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for the bitmap of one message: under loss all arrive nevertheless, in turn."""
    monkeypatch.setattr(Limits, "bitmap_bytes_for", lambda *_: 24)
    table = FramingTable(Faults(drop=0.3, reorder=0.3), seed)
    payloads = [bytes([number]) * 380 for number in range(1, 7)]
    for payload in payloads:
        table.send("a", "b", payload)
    table.run()
    assert table.got["a", "b"] == payloads


def test_what_is_sent_over_a_narrow_link_can_be_stated_in_one_acknowledgement() -> None:
    longest = Limits().longest_message(SMALLEST_CHUNK)
    state = ReceiverState(0, 0, 0, {0: (1 << chunk_count(longest, SMALLEST_CHUNK)) - 1})
    assert len(state.pack()) + 256 < SMALLEST_LINK_DATAGRAM
    assert longest > 100 * MIB
