"""A receiver that lies about what it has: it makes a sender repeat little, however much it says that it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.support.tables.framing_table import introduced_member
from veilsum.transport.errors import Displaced
from veilsum.transport.framing import outgoing
from veilsum.transport.framing.datagrams import LARGEST_NUMBER, Ack, Chunk, ReceiverState, parse_fields
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.framing.outcomes import Acknowledged, Failed
from veilsum.transport.framing.outgoing import MOST_FRUITLESS, MOST_WAITING
from veilsum.transport.limits import KIB, MIB, Limits
from veilsum.transport.lines.book import LineBook
from veilsum.transport.lines.datagrams import CHUNK
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.reliable import FramedTransport

LIMITS = Limits(chunk_bytes=64 * KIB, window_bytes=2 * MIB)
CHUNKS = 128
LIFE = b"lifetime"
ROOM = 1 << 40

Lie = Callable[[int, int], tuple[bytes, int, int]]
"""From how many acknowledgements there were, and the last number heard: a life, what is answered, and a bitmap."""


def nothing_arrived(turn: int, heard: int) -> tuple[bytes, int, int]:
    return LIFE, heard, 0


def other_lives(turn: int, heard: int) -> tuple[bytes, int, int]:
    return turn.to_bytes(8, "big"), heard, 0


def all_and_nothing(turn: int, heard: int) -> tuple[bytes, int, int]:
    return LIFE, heard, (1 << CHUNKS) - 1 if turn % 2 else 0


def one_more_each_time(turn: int, heard: int) -> tuple[bytes, int, int]:
    return LIFE, heard, (1 << min(turn // (MOST_FRUITLESS + 1), CHUNKS - 1)) - 1


def never_sent(turn: int, heard: int) -> tuple[bytes, int, int]:
    return LIFE, min(heard + 10**6 * (turn + 1), LARGEST_NUMBER), 0


def listen(b: Endpoint, now: float) -> Iterator[Chunk | None]:
    """The chunks that an endpoint sends, and None for everything else."""
    while (item := b.next_datagram(now)) is not None:
        view = memoryview(item[1])
        parsed = parse_fields(CHUNK, view) if view[3] == CHUNK else None
        yield parsed[0] if parsed is not None and isinstance(parsed[0], Chunk) else None


def answer(b: Endpoint, member: LineBook, lie: tuple[bytes, int, int], turn: int, now: float) -> int:
    life, answered, bitmap = lie
    body = ReceiverState(0, ROOM, ROOM, {0: bitmap} if bitmap else {}).pack()
    datagram = member.acknowledge("b", Ack(life, turn + 1000, answered).fields(), body)
    assert datagram is not None
    b.receive_datagram("m", datagram, now)
    return len(datagram)


@pytest.mark.parametrize(
    "lie", [nothing_arrived, other_lives, all_and_nothing, one_more_each_time, never_sent]
)
def test_acknowledgements_of_a_liar_make_a_sender_repeat_little(lie: Lie) -> None:
    """3,000 of them in 30 seconds: what is sent stays near the message and its windows; once it was all, each time."""
    b = Endpoint("b", bytes(7) + b"b", LIMITS)
    b.send("m", [bytes(CHUNKS * LIMITS.chunk_bytes)], give_up_at=30.0)
    member = introduced_member(b, "m")
    answer(b, member, (LIFE, 0, 0), 0, 0.0)
    sent = heard = 0
    for turn in range(1, 3000):
        now = turn / 100
        b.handle_deadline(now)
        for chunk in listen(b, now):
            if chunk is not None:
                sent, heard = sent + chunk.body_size, max(heard, chunk.number)
        answer(b, member, lie(turn, heard), turn, now)
    real = 0 if lie is not one_more_each_time else CHUNKS * LIMITS.chunk_bytes
    assert sent <= 4 * LIMITS.window_bytes + 60 * LIMITS.chunk_bytes + (2 * MOST_FRUITLESS + 2) * real


def test_an_answer_to_what_was_never_sent_is_malformed_and_changes_nothing() -> None:
    b = Endpoint("b", bytes(7) + b"b", LIMITS)
    b.send("m", [b"x" * 10], give_up_at=30.0)
    member = introduced_member(b, "m")
    sending, before = b._outgoing["m"], b.counters.malformed
    life = sending._peer_life
    answer(b, member, (b"newerlif", sending.last_number + 1, 0), 0, 0.0)
    assert (b.counters.malformed, sending._peer_life) == (before + 1, life)


def test_a_life_begins_with_a_line_of_its_own() -> None:
    """A second life on the line of the first is not believed; on the next line that we open it is."""
    b = Endpoint("b", bytes(7) + b"b", LIMITS)
    b.send("m", [bytes(10)], give_up_at=90.0)
    member = introduced_member(b, "m")
    answer(b, member, (LIFE, 0, 0), 0, 0.0)
    answer(b, member, (b"newerlif", 0, 0), 1, 0.0)
    sending = b._outgoing["m"]
    assert sending._peer_life == LIFE
    reborn = Endpoint("m", b"newerlif", LIMITS)
    for now in range(1, 60):
        b.handle_deadline(now)
        for _ in range(4):
            for sender, receiver in ((b, reborn), (reborn, b)):
                while (item := sender.next_datagram(now)) is not None:
                    receiver.receive_datagram(sender.address, item[1], now)
    assert b.next_outcome() == Acknowledged("m", 0)
    assert sending._peer_life == b"newerlif"


def waiting_for(receiver: str, count: int, size: int, limits: Limits) -> Endpoint:
    a = Endpoint("a", bytes(7) + b"a", limits)
    for number in range(count):
        a.send(receiver, [number.to_bytes(4, "big") + bytes(size - 4)], give_up_at=90.0)
    return a


def outcomes(endpoint: Endpoint) -> list[Failed]:
    found = list(iter(endpoint.next_outcome, None))
    assert all(isinstance(outcome, Failed) for outcome in found)
    return [outcome for outcome in found if isinstance(outcome, Failed)]


@pytest.mark.parametrize(
    ("limits", "size", "kept"),
    [
        (LIMITS, 4, MOST_WAITING),
        (Limits(max_message_bytes=1000), 400, 5),
        (Limits(max_message_bytes=1000), 1000, 2),
    ],
)
def test_what_waits_for_a_receiver_that_acknowledges_nothing_is_bounded(
    limits: Limits, size: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest give way with a typed error, the newest wait, and when the receiver comes they arrive in order."""
    monkeypatch.setattr(outgoing, "BYTES_WAITING", 1500)
    a = waiting_for("m", kept + 5, size, limits)
    given_up = outcomes(a)
    assert [outcome.message for outcome in given_up] == list(range(5))
    assert all(isinstance(outcome.error, Displaced) and outcome.error.receiver == "m" for outcome in given_up)
    b = Endpoint("m", bytes(7) + b"m", limits)
    got: list[int] = []
    for _ in range(10_000):
        passed = 0
        for sender, receiver in ((a, b), (b, a)):
            while (item := sender.next_datagram(0.0)) is not None:
                receiver.receive_datagram(sender.address, item[1], 0.0)
                passed += 1
        got += [int.from_bytes(one.payload[:4], "big") for one in iter(b.take, None)]
        if not passed:
            break
    assert got == list(range(5, kept + 5))


def test_whoever_waits_for_a_message_that_gave_way_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "BYTES_WAITING", 4000)

    async def scenario() -> None:
        limits = Limits(max_message_bytes=1000)
        async with FramedTransport(Switchboard().link("a"), Endpoint("a", bytes(7) + b"a", limits)) as alice:
            sending = [asyncio.create_task(alice.send("m", [bytes(1000)], 60.0)) for _ in range(6)]
            done, waiting = await asyncio.wait(sending, return_when=asyncio.FIRST_EXCEPTION)
            while len(done) < 2:
                done, waiting = await asyncio.wait(sending, timeout=0.01)
            assert set(sending[:2]) == done
            assert all(isinstance(task.exception(), Displaced) for task in done)
            for task in waiting:
                task.cancel()

    asyncio.run(scenario())
