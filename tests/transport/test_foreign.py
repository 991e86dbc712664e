"""The seam: whatever foreign bytes make a reader raise is a defect, counted and told at a bounded rate."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import MQTTMessage

from tests.support.tables.framing_table import introduced_member
from veilsum.transport.base import Acceptance
from veilsum.transport.foreign import EVERY_S, MOST_LINES, Defect, ForeignReader
from veilsum.transport.framing.datagrams import (
    NO_LIFE,
    Ack,
    Chunk,
    Header,
    Probe,
    parse_fields,
)
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.outcomes import Delivered
from veilsum.transport.lines.datagrams import (
    ACK,
    CHUNK,
    HEAD_BYTES,
    OPEN,
    PROBE,
    kind_of_datagram,
    pack_handshake,
)
from veilsum.transport.lines.plain import PlainCrypto
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.client import V5, new_client
from veilsum.transport.mqtt.topics import Topics
from veilsum.transport.printable import printable, printable_lines
from veilsum.transport.reliable import FramedTransport

LIVES = [bytes(7) + bytes([number]) for number in (1, 2, 3)]
A, B, _ = LIVES

FAILURES: list[Exception] = [
    ValueError("\x1b[2J"),
    OverflowError(),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    RecursionError(),
    MemoryError(),
    KeyError("key"),
]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failing(error: Exception) -> object:
    raise error


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_whatever_reading_raises_is_a_defect_that_says_what_and_who(error: Exception) -> None:
    told: list[Defect] = []
    reader = ForeignReader(told.append)
    assert reader.read("status", "mallory", lambda: failing(error)) is None
    assert reader.counts == {"status": 1}
    (defect,) = told
    assert (defect.what, defect.sender_hint, defect.error) == ("status", "mallory", error)
    assert str(defect).isprintable()
    assert "mallory" in str(defect)


def test_what_can_be_read_is_returned_and_what_is_expected_is_not_counted() -> None:
    reader = ForeignReader(expected=(KeyError,))
    assert reader.read("status", "alice", lambda: 5) == 5
    assert reader.read("status", "alice", lambda: failing(KeyError())) is None
    assert not reader.counts


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from(FAILURES)), max_size=200))
def test_a_flood_under_any_names_writes_few_lines_and_all_are_counted(
    flood: list[tuple[str, Exception]],
) -> None:
    told: list[Defect] = []
    reader = ForeignReader(told.append, clock=Clock())
    for name, error in flood:
        reader.note("message", name, error)
    assert len(told) <= MOST_LINES
    reader.close()
    assert reader.counts.total() == len(flood) == sum(defect.count for defect in told)


def test_after_a_while_the_next_line_says_how_many_were_left_out() -> None:
    told: list[Defect] = []
    clock = Clock()
    reader = ForeignReader(told.append, clock=clock)
    for _ in range(50):
        reader.refuse("packet", "mallory", "no topic of ours")
    assert len(told) == 1
    clock.now = EVERY_S
    reader.refuse("packet", "mallory", "no topic of ours")
    assert [defect.count for defect in told] == [1, 50]


numbers = st.integers(0, 2**64 - 1) | st.integers(0, 40)
lives = st.sampled_from([*LIVES, NO_LIFE])
headers: st.SearchStrategy[Header] = (
    st.builds(
        Chunk,
        lives,
        numbers,
        numbers,
        numbers,
        numbers,
        st.integers(0, 2**32 - 1) | st.integers(0, 20),
        st.integers(0, 2**32 - 1) | st.integers(0, 3),
    )
    | st.builds(Probe, lives, numbers, numbers)
    | st.builds(Ack, lives, numbers, numbers)
)


@given(st.lists(st.tuples(headers, st.binary(max_size=60)), max_size=8))
def test_whatever_an_authenticated_sender_seals_an_endpoint_does_not_raise(
    sealed: list[tuple[Header, bytes]],
) -> None:
    """Headers and bodies of any content, also answers to what we sent: they are taken in, or dropped."""
    b = Endpoint("b", B)
    b.send("a", [bytes(100)], give_up_at=60.0)
    member = introduced_member(b, "a")
    dropped = b.counters.not_opened
    for header, body in sealed:
        fields = header.fields()
        if isinstance(header, Ack):
            datagram = member.acknowledge("b", fields, body)
        elif isinstance(header, Probe):
            datagram = list(member.ask("b", fields, 0.0, timed_out=False))[-1]
        else:
            (datagram,) = member.carry("b", fields, body, 0.0)
        assert datagram is not None
        b.receive_datagram("a", datagram, 0.0)
        while b.next_datagram(0.0) is not None:
            pass
    assert b.counters.not_opened == dropped
    b.handle_deadline(1.0)


@given(
    st.binary(max_size=100)
    | st.tuples(st.integers(1, 3), st.binary(max_size=100)).map(lambda d: b"VS2" + bytes([d[0]]) + d[1])
)
def test_any_bytes_are_a_header_or_none(data: bytes) -> None:
    view = memoryview(data)
    kind = kind_of_datagram(view)
    parsed = parse_fields(kind, view) if kind in (CHUNK, PROBE, ACK) else None
    assert parsed is None or parsed[0].fields() == data[HEAD_BYTES : parsed[1]]


@given(st.text(), st.sampled_from(["", "/status", "/gone"]))
def test_any_topic_names_a_party_or_nobody(text: str, suffix: str) -> None:
    topics = Topics("fed")
    base = topics.status("alice").removesuffix("alice/status")
    for topic in (text + suffix, base + text + suffix, f"{base}bob/from/{text}"):
        for found in (
            topics.sender_of(topic, "bob"),
            topics.party_of_status(topic),
            topics.party_of_gone(topic),
        ):
            assert found is None or (found.isascii() and "/" not in found)


@given(st.text())
def test_printable_text_cannot_start_a_line_or_steer_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))
    if text.isprintable():
        assert printable(text) == text


def test_a_seal_that_fails_in_no_known_way_costs_one_datagram_and_the_transport_goes_on() -> None:
    class Failing(PlainCrypto):
        def accept_line(self, sender: str, body: bytes) -> Acceptance | None:
            if sender == "mallory":
                raise OverflowError("int too big to convert")
            return super().accept_line(sender, body)

    def gone(address: str) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    async def scenario() -> None:
        board = Switchboard()
        bob = FramedTransport(board.link("b"), Endpoint("b", B, crypto=Failing("b", B)), gone)
        mallory = board.link("mallory")
        async with bob, FramedTransport(board.link("a"), Endpoint("a", A)) as alice, mallory:
            for _ in range(3):
                await mallory.send("b", pack_handshake(OPEN, bytes(32)))
            await alice.send("b", [b"hello"], 10.0)
            received = await bob.receive()
            assert (received.sender_hint, bytes(received.payload)) == ("a", b"hello")
            assert bob.foreign.counts == {"datagram": 3}

    asyncio.run(scenario())


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_packet_under_any_bytes_as_topic_is_queued_or_counted(topic: bytes, payload: bytes) -> None:
    """A broker may send topics that are no UTF-8, empty, or wildcards: none of them breaks the connection."""

    async def scenario() -> None:
        reader = ForeignReader(lambda defect: None)
        client = new_client(
            BrokerAddress("localhost"),
            V5,
            "me",
            "gone",
            tls=None,
            answer_within_s=1.0,
            logger=logging.getLogger("test"),
            foreign=reader,
        )
        message = MQTTMessage(topic=topic)
        message.payload = payload
        client._on_message(None, None, message)
        assert len(client.messages) + reader.counts["packet"] == 1

    asyncio.run(scenario())


def test_delivered_messages_are_those_that_were_sent_whatever_came_between() -> None:
    """Junk between the datagrams of an honest sender changes nothing about what arrives."""
    a, b = Endpoint("a", A), Endpoint("b", B)
    a.send("b", [b"x" * 1000], give_up_at=60.0)
    delivered: Delivered | None = None
    for _ in range(20):
        for sender, receiver in ((a, b), (b, a)):
            while (item := sender.next_datagram(0.0)) is not None:
                receiver.receive_datagram("mallory", b"VS1\1" + bytes(70), 0.0)
                receiver.receive_datagram(sender.address, item[1], 0.0)
        delivered = delivered or b.take()
    assert delivered is not None
    assert bytes(delivered.payload) == b"x" * 1000
