"""Single situations of framing: refusals, repetitions, recordings that are played back, limits."""

from __future__ import annotations

import pytest

from tests.support.refusals import refusal, require_mentions
from tests.support.tables.framing_table import TINY, FramingTable
from tests.support.tables.sealed_party import lines_of
from veilsum.transport.errors import BadSetting, TooLarge, Unreachable
from veilsum.transport.framing.datagrams import Chunk
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.incoming import MESSAGE_OVERHEAD, Incoming
from veilsum.transport.framing.outcomes import Acknowledged, Failed
from veilsum.transport.limits import MIB, Limits
from veilsum.transport.lines.datagrams import ACK, CHUNK, HEAD_BYTES, pack_head, parse_head


def keyed(address: str, life: bytes, limits: Limits = TINY) -> Endpoint:
    """An endpoint whose datagrams only the two ends of a pair can make."""
    return Endpoint(address, life, limits, lines_of(address))


def life(number: int) -> bytes:
    return number.to_bytes(8, "big")


def drain(endpoint: Endpoint, now: float = 0.0) -> list[bytes]:
    datagrams = []
    while (item := endpoint.next_datagram(now)) is not None:
        datagrams.append(item[1])
    return datagrams


def converse(left: Endpoint, right: Endpoint, now: float = 0.0) -> list[tuple[str, bytes]]:
    """Pass datagrams between two endpoints until both are silent; returns everything that passed."""
    passed = []
    for _ in range(1000):
        silent = True
        for sender, receiver in ((left, right), (right, left)):
            for datagram in drain(sender, now):
                silent = False
                passed.append((sender.address, datagram))
                receiver.receive_datagram(sender.address, datagram, now)
        if silent:
            return passed
    raise AssertionError("the conversation does not end")


def introduce(left: Endpoint, right: Endpoint) -> None:
    """Let `left` open a line, confirm it and hear what `right` has: only then do its chunks leave."""
    for _ in range(2):
        for sender, receiver in ((left, right), (right, left)):
            for datagram in drain(sender):
                receiver.receive_datagram(sender.address, datagram, 0.0)


def taken(endpoint: Endpoint) -> list[bytes]:
    messages = []
    while (delivered := endpoint.take()) is not None:
        messages.append(bytes(delivered.payload))
    return messages


def test_several_buffers_arrive_as_one_message() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [b"", b"one", bytearray(b"two" * 20), memoryview(b"three")], give_up_at=9.0)
    converse(a, b)
    assert taken(b) == [b"one" + b"two" * 20 + b"three"]
    assert a.next_outcome() == Acknowledged("b", 0)


def test_no_datagram_opens_after_any_one_of_its_bits_was_flipped() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [b"x" * 20], give_up_at=9.0)
    for sender, datagram in converse(a, b):
        receiver = b if sender == "a" else a
        before = receiver.counters.not_opened + receiver.counters.malformed
        for bit in range(len(datagram) * 8):
            damaged = bytearray(datagram)
            damaged[bit // 8] ^= 1 << bit % 8
            receiver.receive_datagram(sender, bytes(damaged), 0.0)
        assert receiver.counters.not_opened + receiver.counters.malformed == before + len(datagram) * 8
    assert len(taken(b)) == 1


@pytest.mark.parametrize(
    "junk", [b"", b"VS", b"VS2\x01", bytes(200), b"VS2\x09" + bytes(200), b"VS2\x01" + bytes(80)]
)
def test_junk_is_dropped_and_not_answered(junk: bytes) -> None:
    b = keyed("b", life(2))
    b.receive_datagram("a", junk, 0.0)
    assert drain(b) == []
    assert b.counters.malformed == 1


def test_a_stranger_cannot_occupy_memory() -> None:
    b, mallory = keyed("b", life(2)), Endpoint("a", life(3), TINY)
    mallory.send("b", [b"m" * 300], give_up_at=9.0)
    converse(mallory, b)
    assert b.held_bytes("a") == 0
    assert b.counters.not_opened > 0


def test_a_datagram_moved_to_another_receiver_or_named_after_another_sender_is_dropped() -> None:
    a, b, c = keyed("a", life(1)), keyed("b", life(2)), keyed("c", life(3))
    a.send("b", [b"for b"], give_up_at=9.0)
    (probe,) = drain(a)
    c.receive_datagram("a", probe, 0.0)
    b.receive_datagram("c", probe, 0.0)
    assert c.counters.not_opened == b.counters.not_opened == 1


def test_a_recording_from_before_the_receivers_restart_delivers_nothing() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [b"once" * 20], give_up_at=9.0)
    recording = [datagram for sender, datagram in converse(a, b) if sender == "a"]
    reborn = keyed("b", life(3))
    for datagram in recording * 2:
        reborn.receive_datagram("a", datagram, 1.0)
    assert taken(b) == [b"once" * 20]
    assert taken(reborn) == []
    assert reborn.counters.not_opened > 0


def test_chunks_of_an_earlier_life_held_back_by_the_broker_are_refused_for_ever() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [b"old"], give_up_at=9.0)
    introduce(a, b)
    held_back = drain(a)
    reborn = keyed("a", life(3))
    reborn.send("b", [b"new"], give_up_at=9.0)
    converse(reborn, b)
    for datagram in held_back:
        b.receive_datagram("a", datagram, 1.0)
    assert taken(b) == [b"new"]
    reborn.send("b", [b"newer"], give_up_at=9.0)
    converse(reborn, b)
    assert taken(b) == [b"newer"]


def test_after_an_interruption_only_missing_chunks_travel_again() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    message = bytes(range(256))
    a.send("b", [message], give_up_at=99.0)
    introduce(a, b)
    first_window = drain(a)
    assert len(first_window) == 4
    b.receive_datagram("a", first_window[0], 0.0)
    b.receive_datagram("a", first_window[2], 0.0)
    drain(b)
    a.link_restored()
    converse(a, b, now=1.0)
    assert taken(b) == [message]
    assert a.repeated_chunks("b") == 2


def test_a_receiver_that_restarts_in_the_middle_gets_the_whole_message_again() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [bytes(range(200))], give_up_at=99.0)
    for now in (0.0, 0.1):
        for datagram in drain(a, now):
            b.receive_datagram("a", datagram, now)
        for datagram in drain(b, now):
            a.receive_datagram("b", datagram, now)
    reborn = keyed("b", life(3))
    now = 0.2
    while not converse(a, reborn, now) or a.next_outcome() is None:
        now = a.next_deadline() or 99.0
        a.handle_deadline(now)
    assert taken(reborn) == [bytes(range(200))]


def test_a_silent_receiver_costs_probes_and_no_data() -> None:
    a = keyed("a", life(1))
    a.send("b", [bytes(300)], give_up_at=60.0)
    sent = drain(a, 0.0)
    while (deadline := a.next_deadline()) is not None:
        a.handle_deadline(deadline)
        sent += drain(a, deadline)
    outcome = a.next_outcome()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, Unreachable)
    assert "never answered" in outcome.error.detail
    assert sum(map(len, sent)) < 80 * 120, "one small datagram per timeout"


def test_who_comes_late_and_is_heard_is_asked_at_once() -> None:
    """Nobody waits for a timeout any more once the other one has confirmed a line, which no recording can."""
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [b"knock"], give_up_at=9.0)
    drain(a)  # b is not there yet
    b.send("a", [b"come in"], give_up_at=9.0)
    passed = converse(b, a, now=0.1)
    assert taken(a) == [b"come in"]
    assert taken(b) == [b"knock"]
    later = life(3)
    for number, datagram in enumerate([datagram for sender, datagram in passed if sender == "b"]):
        deaf = keyed("a", later)
        deaf.send("b", [b"knock"], give_up_at=9.0)
        drain(deaf)
        deaf.receive_datagram("b", datagram, 0.2)
        answers = len(drain(deaf, 0.2))
        assert answers <= 1, f"datagram {number} that was played back is asked for what it missed"


def test_a_link_that_swallows_chunks_but_not_probes_is_named_in_the_error() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [bytes(300)], give_up_at=5.0)
    now = 0.0
    while (outcome := a.next_outcome()) is None:
        a.handle_deadline(now)
        for datagram in drain(a, now):
            if datagram[3] != CHUNK:
                b.receive_datagram("a", datagram, now)
        for datagram in drain(b, now):
            a.receive_datagram("b", datagram, now)
        drain(a, now)
        now = a.next_deadline() or now
    assert isinstance(outcome, Failed)
    require_mentions(str(outcome.error), "limit", "broker")


def test_a_message_beyond_our_own_limit_is_refused_before_anything_is_sent() -> None:
    a = keyed("a", life(1))
    with refusal(TooLarge, 401, "b", "max_message_bytes", 400):
        a.send("b", [bytes(401)], give_up_at=9.0)
    assert drain(a) == []


def test_a_message_beyond_the_receivers_limit_fails_with_that_limit() -> None:
    a = keyed("a", life(1), Limits(chunk_bytes=16, max_message_bytes=4000))
    b = keyed("b", life(2))
    a.send("b", [bytes(1000)], give_up_at=9.0)
    a.send("b", [bytes(100)], give_up_at=9.0)
    converse(a, b)
    failed, delivered = a.next_outcome(), a.next_outcome()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, TooLarge)
    assert failed.error.limit == 400
    assert delivered == Acknowledged("b", 1)
    assert taken(b) == [bytes(100)]


def test_a_driver_that_comes_late_every_time_still_makes_progress() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [bytes(100)], give_up_at=99.0)
    for step in range(20):
        now = 3.0 * step
        a.handle_deadline(now)
        b.handle_deadline(now)
        for datagram in drain(a, now):
            b.receive_datagram("a", datagram, now)
        for datagram in drain(b, now):
            a.receive_datagram("b", datagram, now)
    assert taken(b) == [bytes(100)]


def test_acknowledgements_of_a_stream_are_gathered() -> None:
    limits = Limits(chunk_bytes=16, window_bytes=160)
    a, b = keyed("a", life(1), limits), keyed("b", life(2), limits)
    a.send("b", [bytes(1600)], give_up_at=9.0)
    passed = converse(a, b)
    assert taken(b) == [bytes(1600)]
    assert sum(sender == "b" for sender, _ in passed) < 60
    assert sum(sender == "a" for sender, _ in passed) == 100 + len(("open", "confirm", "probe"))


def test_a_lonely_chunk_is_acknowledged_after_a_short_while() -> None:
    a, b = keyed("a", life(1), Limits(chunk_bytes=16)), keyed("b", life(2), Limits(chunk_bytes=16))
    a.send("b", [bytes(40)], give_up_at=9.0)
    introduce(a, b)
    b.receive_datagram("a", drain(a)[0], 0.0)
    assert drain(b) == []
    assert b.next_deadline() == Limits().ack_delay_s
    b.handle_deadline(Limits().ack_delay_s)
    assert len(drain(b)) == 1


def test_a_cancelled_message_does_not_hold_up_its_successors() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    first = a.send("b", [b"first" * 10], give_up_at=9.0)
    a.send("b", [b"second"], give_up_at=9.0)
    for datagram in drain(a):
        b.receive_datagram("a", datagram, 0.0)
    a.cancel("b", first)
    converse(a, b)
    assert taken(b) == [b"second"]


def test_a_message_given_up_half_way_lets_the_next_one_through() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    a.send("b", [b"a" * 40], give_up_at=1.0)
    a.send("b", [b"second"], give_up_at=9.0)
    introduce(a, b)
    _lost, *others = drain(a)
    for datagram in others:
        b.receive_datagram("a", datagram, 0.0)
    assert taken(b) == [], "the second message waits for its turn"
    a.handle_deadline(1.0)
    assert isinstance(a.next_outcome(), Failed)
    converse(a, b, now=1.0)
    assert taken(b) == [b"second"]
    assert a.next_outcome() == Acknowledged("b", 1)


def test_a_sender_that_ignores_every_limit_is_held_to_them() -> None:
    """Chunks of messages far ahead, too many of them or too large, occupy no memory."""
    b = Incoming(TINY)
    for number in range(1, 1000):
        b.receive_chunk(Chunk(life(1), 1, number, 0, 300, 16, 0), bytes(16))
    ahead = b.held_bytes
    assert (
        TINY.max_message_bytes < ahead <= TINY.max_message_bytes + TINY.most_open_messages * MESSAGE_OVERHEAD
    )
    b.receive_chunk(Chunk(life(1), 1, 0, 0, 401, 16, 0), bytes(16))
    assert b.held_bytes == ahead, "larger than any message may be"
    b.receive_chunk(Chunk(life(1), 1, 0, 0, 400, 16, 0), bytes(16))
    assert b.held_bytes == ahead + 400 + MESSAGE_OVERHEAD, "the next in turn finds room all the same"


def test_a_chunk_that_contradicts_its_message_is_dropped() -> None:
    b = Incoming(TINY)
    b.receive_chunk(Chunk(life(1), 1, 0, 0, 20, 16, 0), b"x" * 16)
    b.receive_chunk(Chunk(life(1), 1, 0, 0, 40, 16, 1), b"y" * 16)
    b.receive_chunk(Chunk(life(1), 1, 0, 0, 20, 16, 1), b"y" * 5)
    assert b.state(64).bitmaps == {0: 0b01}
    assert b.receive_chunk(Chunk(life(1), 1, 0, 0, 20, 16, 1), b"y" * 4) == [b"x" * 16 + b"y" * 4]


def test_room_that_others_waited_for_is_announced_when_the_application_makes_it() -> None:
    a, b = keyed("a", life(1)), keyed("b", life(2))
    for number in range(20):
        a.send("b", [bytes([number]) * 390], give_up_at=99.0)
    converse(a, b)
    assert drain(b) == []
    assert b.take() is not None
    assert len(drain(b)) == 1
    converse(a, b)
    assert len(taken(b)) >= 6


def test_an_acknowledgement_cannot_be_forged_by_the_broker() -> None:
    """Neither one that was heard before, nor one with another number, nor one of a made-up line is believed."""
    a, b, forger = keyed("a", life(1)), keyed("b", life(2)), Endpoint("b", life(2), TINY)
    a.send("b", [b"first"], give_up_at=9.0)
    heard = [datagram for sender, datagram in converse(a, b) if sender == "b" and datagram[3] == ACK]
    assert a.next_outcome() == Acknowledged("b", 0)
    a.send("b", [b"precious"], give_up_at=9.0)
    held_back = drain(a)
    line, number = parse_head(memoryview(heard[-1]))
    renumbered = [pack_head(ACK, line, number + 1) + datagram[HEAD_BYTES:] for datagram in heard]
    refused = a.counters.not_opened
    for datagram in (*heard, *renumbered):
        a.receive_datagram("b", datagram, 0.0)
    for datagram in held_back:
        forger.receive_datagram("a", datagram, 0.0)
    assert drain(forger) == []
    assert a.counters.not_opened == refused + 2 * len(heard)
    assert a.next_outcome() is None


@pytest.mark.parametrize("bad", [b"", b"short", bytes(8), bytes(9)])
def test_a_life_is_eight_bytes_and_not_zero(bad: bytes) -> None:
    with pytest.raises(BadSetting, match="8 random bytes"):
        Endpoint("a", bad)


def test_chunks_follow_the_largest_datagram_of_the_link() -> None:
    limits = Limits()
    assert limits.chunk_bytes_for(None) == 512 * 1024
    assert limits.chunk_bytes_for(200_000) == 200_000 - 4096
    assert limits.chunk_bytes_for(10 * MIB) == 512 * 1024
    with pytest.raises(BadSetting, match="at least 8192"):
        limits.chunk_bytes_for(100)


def test_a_window_of_messages_shares_the_road() -> None:
    """Messages to different receivers alternate, so that one large message does not delay all others."""
    table = FramingTable()
    table.send("a", "b", bytes(400))
    table.send("a", "c", b"short")
    table.run(until=0.05)
    assert table.got["a", "c"] == [b"short"]
    assert table.got["a", "b"] == []
