"""Lines: what one end seals the other end opens, once; and nothing that is played back, moved or made up counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables.line_parties import LineParty, confirm_line, introduced, open_line
from veilsum.transport.errors import BadSetting
from veilsum.transport.lines.datagrams import ACCEPT, ACK, CHUNK, CONFIRM, OPEN, PROBE, pack_head, parse_head
from veilsum.transport.lines.line import REPLAY_WINDOW, LineLimits, ReplayNumbers


def kinds(datagrams: list[bytes]) -> list[int]:
    return [datagram[3] for datagram in datagrams]


@given(data=st.binary(max_size=200))
def test_a_chunk_opens_once_at_its_receiver_and_shows_nothing_on_the_way(data: bytes) -> None:
    alice, bob = introduced()
    (chunk,) = alice.chunk(bob, data)
    assert bob.reads("alice", chunk) == data
    assert bob.reads("alice", chunk) is None, "the second time it is a replay"
    assert len(data) < 8 or data not in chunk


@given(at=st.integers(min_value=4), flip=st.integers(1, 255))
def test_a_changed_datagram_opens_nowhere_and_changes_nothing(at: int, flip: int) -> None:
    """One changed byte behind the kind is enough, for each of the six kinds; the unchanged one still counts."""
    alice, bob = LineParty("alice"), LineParty("bob")

    def damaged(datagram: bytes) -> bytes:
        changed = bytearray(datagram)
        changed[4 + at % (len(changed) - 4)] ^= flip
        return bytes(changed)

    (opening,) = alice.ask(bob)
    assert bob.hear("alice", damaged(opening)) is None
    accept = bob.hear("alice", opening)
    assert isinstance(accept, bytes) and accept[3] == ACCEPT
    assert alice.hear("bob", damaged(accept)) is None
    assert alice.hear("bob", accept)
    confirm, probe = alice.ask(bob)
    assert bob.hear("alice", damaged(confirm)) is None
    assert bob.hear("alice", confirm)
    (chunk,) = alice.chunk(bob, b"bytes")
    ack = bob.ack(alice, b"held")
    assert ack is not None
    for receiver, sender, datagram in ((bob, "alice", probe), (bob, "alice", chunk), (alice, "bob", ack)):
        assert receiver.hear(sender, damaged(datagram)) is None
        assert receiver.reads(sender, datagram) is not None


@given(
    sender=st.sampled_from(["alice", "bob", "eve", "", "\ud7ff"]),
    kind=st.integers(0, 8),
    rest=st.binary(max_size=200),
)
def test_anything_at_all_is_dropped_and_never_an_error(sender: str, kind: int, rest: bytes) -> None:
    _, bob = introduced()
    assert bob.hear(sender, b"VS2" + bytes([kind]) + rest) is None
    assert bob.hear(sender, rest) is None


def test_a_reflected_open_accept_or_box_is_dropped() -> None:
    """Sent back to its maker under the other's name, or under its own."""
    alice, bob = LineParty("alice"), LineParty("bob")
    opening, accept = open_line(alice, bob)
    sent = confirm_line(alice, bob, accept)
    (chunk,) = alice.chunk(bob, b"content")
    for datagram in (opening, *sent, chunk):
        assert alice.hear("bob", datagram) is None
        assert alice.hear("alice", datagram) is None
    assert bob.hear("alice", accept) is None


def test_swapped_and_borrowed_names_are_dropped() -> None:
    """An open for bob is none for carol, and none of carol's; an accept of bob is none of carol's."""
    alice, bob, carol = LineParty("alice"), LineParty("bob"), LineParty("carol")
    opening, accept = open_line(alice, bob)
    assert carol.hear("alice", opening) is None
    assert bob.hear("carol", opening) is None
    alice.ask(carol)
    assert alice.hear("carol", accept) is None
    assert alice.hear("bob", accept)


def test_nobody_takes_over_the_key_share_of_another() -> None:
    """Carol signs alice's share as her own: the line that bob accepts is then one that nobody can confirm."""
    alice, bob, carol = LineParty("alice"), LineParty("bob"), LineParty("carol")
    opening, accept = open_line(alice, bob)
    taken_over = opening[:52] + carol.ask(bob)[0][52:]
    assert bob.hear("carol", taken_over) is None, "the signature covers the share"
    confirm_line(alice, bob, accept)
    (chunk,) = alice.chunk(bob, b"from alice")
    assert bob.reads("carol", chunk) is None
    assert bob.reads("alice", chunk) == b"from alice"


def test_federations_with_the_same_parties_do_not_mix() -> None:
    alice, bob = LineParty("alice"), LineParty("bob", federation="another")
    assert bob.hear("alice", alice.ask(bob)[0]) is None


def test_nobody_outside_the_roster_is_listened_to_and_nothing_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bob, eve = LineParty("bob"), LineParty("eve", secret="known to nobody else")
    opening = eve.book._crypto.open_line("bob").body
    for _ in range(3):
        assert bob.hear("eve", b"VS2" + bytes([OPEN]) + opening) is None
    assert len([one for one in caplog.records if "eve is not in roster" in one.message]) == 1
    assert not bob.book._answerers
    assert not list(bob.book.ask("eve", b"", 0.0, timed_out=False))


def test_a_thief_of_the_receivers_key_is_not_the_sender() -> None:
    """Who knows bob's identity key cannot pose as alice towards bob."""
    alice, bob = introduced()
    thief = LineParty("alice", secret="stolen from somebody else")
    assert bob.hear("alice", thief.ask(bob)[0]) is None
    assert bob.reads("alice", alice.chunk(bob, b"still open")[0]) == b"still open"


def test_the_same_open_gets_the_stored_accept_and_another_one_a_new_line() -> None:
    alice, bob = LineParty("alice"), LineParty("bob")
    opening, accept = open_line(alice, bob)
    assert alice.ask(bob) == [opening]
    assert bob.hear("alice", opening) == accept
    again, other = open_line(LineParty("alice"), bob)
    assert again != opening and other != accept


def test_chunks_before_the_confirm_are_dropped() -> None:
    alice, bob = LineParty("alice"), LineParty("bob")
    assert alice.hear("bob", open_line(alice, bob)[1])
    confirm, probe = alice.ask(bob)
    assert bob.reads("alice", probe) is None
    assert bob.ack(alice, b"anything") is None
    assert bob.hear("alice", confirm)
    repeated, second = alice.ask(bob)
    assert repeated == confirm, "the stored bytes again"
    assert bob.hear("alice", repeated) is None
    assert bob.reads("alice", second) == b""


def test_a_stale_confirm_displaces_nothing() -> None:
    """A line that was accepted earlier than the confirmed one is over, whenever its confirm comes."""
    old, new, bob = LineParty("alice"), LineParty("alice"), LineParty("bob")
    assert old.hear("bob", open_line(old, bob)[1])
    held_back, _ = old.ask(bob)
    confirm_line(new, bob, open_line(new, bob)[1])
    assert bob.hear("alice", held_back) is None
    assert bob.reads("alice", new.chunk(bob, b"present")[0]) == b"present"
    assert bob.reads("alice", old.chunk(bob, b"past")[0]) is None


def test_the_line_before_is_read_and_the_one_before_that_is_not() -> None:
    bob, starts = LineParty("bob"), [LineParty("alice") for _ in range(3)]
    waiting = []
    for alice in starts:
        confirm_line(alice, bob, open_line(alice, bob)[1])
        waiting.append(alice.chunk(bob, b"under way")[0])
    found = [bob.hear("alice", datagram) for datagram in waiting]
    assert found[0] is None
    assert [getattr(one, "newest", None) for one in found] == [None, False, True]


def test_replayed_opens_of_earlier_starts_evict_nothing() -> None:
    """Eight of them, twice over: the line stays, its numbers go on, and only unconfirmed lines make room, once."""
    bob = LineParty("bob")
    recorded = [LineParty("alice").ask(bob)[0] for _ in range(8)]
    alice = LineParty("alice")
    confirm_line(alice, bob, open_line(alice, bob)[1])
    (before,) = alice.chunk(bob, b"before")
    assert bob.reads("alice", before) == b"before"
    answers = [bob.hear("alice", opening, float(turn)) for turn, opening in enumerate(recorded * 2)]
    assert all(answers[:8])
    assert answers[8:] == [None] * 4 + answers[4:8], "what made room is spent, the others have their accept"
    assert len(bob.book._answerers["alice"]._unconfirmed) == 4
    (after,) = alice.chunk(bob, b"after")
    assert parse_head(memoryview(after)) == (parse_head(memoryview(before))[0], 3)
    assert bob.reads("alice", after) == b"after"
    assert bob.reads("alice", before) is None
    ack = bob.ack(alice, b"got both")
    assert ack is not None and alice.reads("bob", ack) == b"got both"


def test_a_flood_of_opens_is_refused_without_being_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five a second are verified, whoever made them; a repeated one costs nothing; then it goes on."""
    bob, verified = LineParty("bob"), []
    accept_line = bob.book._crypto.accept_line
    monkeypatch.setattr(
        bob.book._crypto,
        "accept_line",
        lambda sender, body: verified.append(body) or accept_line(sender, body),
    )
    known, accept = open_line(LineParty("alice"), bob)
    for _ in range(100):
        bob.hear("alice", LineParty("alice").ask(bob)[0][:-1] + b"\0", 0.5)
    assert len(verified) == 5
    assert bob.hear("alice", known, 0.5) == accept
    assert isinstance(bob.hear("alice", LineParty("alice").ask(bob)[0], 1.6), bytes)


def test_recordings_in_a_loop_do_not_keep_a_sender_from_opening_a_line() -> None:
    """Each takes its turn once: then the open of the present start is among the few that are verified."""
    alice, bob = LineParty("alice"), LineParty("bob")
    recorded = [LineParty("alice").ask(bob)[0] for _ in range(8)]
    for turn in range(400):
        bob.hear("alice", recorded[turn % 8], turn / 100)
    confirm_line(alice, bob, open_line(alice, bob, 4.0)[1])


def test_an_open_that_is_never_answered_gives_way_to_a_fresh_one() -> None:
    alice, bob = LineParty("alice"), LineParty("bob")
    asked = [alice.ask(bob)[0] for _ in range(8)]
    assert [asked.count(one) for one in dict.fromkeys(asked)] == [4, 4]
    assert alice.hear("bob", bob.hear("alice", asked[0]) or b"") is None, "what it waited for is over"
    accept = bob.hear("alice", asked[-1])
    assert isinstance(accept, bytes) and alice.hear("bob", accept)


def test_after_two_timeouts_a_new_line_is_opened_and_the_old_one_kept_until_it_is_confirmed() -> None:
    alice, bob = introduced()
    assert kinds(alice.ask(bob, 1.0, timed_out=True)) == [PROBE]
    opening, _ = asked = alice.ask(bob, 2.0, timed_out=True)
    assert kinds(asked) == [OPEN, PROBE]
    late_ack, later_ack = bob.ack(alice, b"old"), bob.ack(alice, b"older")
    accept = bob.hear("alice", opening, 2.0)
    assert isinstance(accept, bytes) and alice.hear("bob", accept)
    assert late_ack is not None and alice.reads("bob", late_ack) == b"old"
    confirm, probe = alice.ask(bob, 2.0)
    assert bob.hear("alice", confirm) and bob.reads("alice", probe) == b""
    ack = bob.ack(alice, b"new")
    assert ack is not None and alice.reads("bob", ack) == b"new"
    assert later_ack is not None and alice.reads("bob", later_ack) is None


@pytest.mark.parametrize(
    ("limits", "sent", "now"),
    [
        (LineLimits(most_boxes=4), [b"", b""], 0.0),
        (LineLimits(most_bytes=74), [b"ten bytes!"], 0.0),
        (LineLimits(longest_s=60.0), [b""], 60.0),
    ],
    ids=["boxes", "bytes", "time"],
)
def test_a_worn_line_is_replaced(limits: LineLimits, sent: list[bytes], now: float) -> None:
    alice, bob = introduced(limits=limits)
    for data in sent:
        assert kinds(alice.chunk(bob, data)) == [CHUNK]
    assert kinds(alice.chunk(bob, b"", now)) == [OPEN, CHUNK]
    assert kinds(alice.chunk(bob, b"", now)) == [CHUNK], "it waits for its answer"
    assert kinds(alice.chunk(bob, b"", now + limits.ask_again_s)) == [OPEN, CHUNK]
    assert kinds(alice.ask(bob, now)) == [OPEN, PROBE]


def test_no_box_beyond_the_last_number_is_sealed_or_opened() -> None:
    alice, bob = introduced()
    line = alice.book._callers["bob"]._line
    assert line is not None
    line._next_number = 2**32 - 1
    (last,) = [one for one in alice.chunk(bob, b"last") if one[3] == CHUNK]
    assert kinds(alice.chunk(bob, b"one too many", 99.0)) == [OPEN]
    assert bob.reads("alice", last) == b"last"
    beyond = pack_head(CHUNK, line.id, 2**32) + last[28:]
    assert bob.reads("alice", beyond) is None


def test_an_acknowledgement_cannot_be_forged() -> None:
    """Not from a chunk of the same line, not with another number, not from another line."""
    alice, bob = introduced()
    (chunk,) = alice.chunk(bob, b"payload")
    ack = bob.ack(alice, b"0 delivered")
    assert ack is not None
    line, number = parse_head(memoryview(ack))
    assert alice.hear("bob", chunk[:3] + bytes([ACK]) + chunk[4:]) is None
    assert alice.hear("bob", pack_head(ACK, line, number + 1) + ack[28:]) is None
    others_alice, others_bob = introduced()
    foreign = others_bob.ack(others_alice, b"all delivered")
    assert foreign is not None
    assert alice.hear("bob", foreign) is None
    assert alice.hear("bob", pack_head(ACK, line, number) + foreign[28:]) is None
    assert alice.reads("bob", ack) == b"0 delivered"


numbers = st.lists(st.integers(0, 3 * REPLAY_WINDOW), max_size=200)


@given(numbers)
def test_the_window_agrees_with_a_memory_without_bound(received: list[int]) -> None:
    window, seen = ReplayNumbers(), set[int]()
    for number in received:
        too_old = bool(seen) and number <= max(seen) - REPLAY_WINDOW
        assert window.is_new(number) == (number not in seen and not too_old)
        if window.is_new(number):
            window.note(number)
            seen.add(number)


@pytest.mark.parametrize("bad", [{"most_boxes": 2**33}, {"opens_per_s": 0}, {"longest_s": -1.0}])
def test_limits_that_cannot_work_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BadSetting, match=next(iter(bad))):
        LineLimits(**bad)  # type: ignore[arg-type]  # hypothetical settings of one type


def test_a_confirm_needs_the_first_number_and_the_right_signature() -> None:
    alice, bob = LineParty("alice"), LineParty("bob")
    assert alice.hear("bob", open_line(alice, bob)[1])
    confirm, probe = alice.ask(bob)
    assert bob.hear("alice", probe[:3] + bytes([CONFIRM]) + probe[4:]) is None
    assert bob.hear("alice", confirm)
