"""Every message once: duplicates are dropped, equivocation is proved, memory is bounded."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.defects import InvalidField, WireError
from veilsum.protocol.errors import AbortReason, ParameterError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.replay import Duplicate, ReplayGuard, ReplaySnapshot, SeenMessage
from veilsum.protocol.wire import decode_record, encode_record

ALICE, BOB = PartyId("alice"), PartyId("bob")


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_the_same_bytes_again_are_a_duplicate() -> None:
    guard = ReplayGuard()
    guard.admit(ALICE, 7, digest("one"))
    before = guard.snapshot()
    with pytest.raises(Duplicate) as caught:
        guard.admit(ALICE, 7, digest("one"))
    assert caught.value.reason is AbortReason.REPLAY
    assert guard.snapshot() == before


def test_other_bytes_under_the_same_number_are_equivocation_by_the_sender() -> None:
    guard = ReplayGuard()
    guard.admit(ALICE, 7, digest("one"))
    before = guard.snapshot()
    with pytest.raises(RemoteProtocolError) as caught:
        guard.admit(ALICE, 7, digest("other"))
    assert (caught.value.culprit, caught.value.reason) == ("alice", AbortReason.EQUIVOCATION)
    assert guard.snapshot() == before


def test_senders_do_not_share_numbers() -> None:
    guard = ReplayGuard()
    guard.admit(ALICE, 0, digest("one"))
    guard.admit(BOB, 0, digest("two"))
    assert list(guard.snapshot().seen) == [ALICE, BOB]


def test_numbers_may_arrive_in_any_order_within_the_window() -> None:
    guard = ReplayGuard(window=4)
    for sequence in (10, 8, 9, 7):
        guard.admit(ALICE, sequence, digest(str(sequence)))
    with pytest.raises(Rejection, match="older than the window") as caught:
        guard.admit(ALICE, 6, digest("6"))
    assert caught.value.reason is AbortReason.REPLAY
    assert not isinstance(caught.value, Duplicate)


def test_a_forgotten_number_is_never_admitted_again() -> None:
    guard = ReplayGuard(window=2)
    for sequence in (1, 2, 3):
        guard.admit(ALICE, sequence, digest(str(sequence)))
    with pytest.raises(Rejection):
        guard.admit(ALICE, 1, digest("1"))


arrivals = st.lists(
    st.tuples(st.sampled_from([ALICE, BOB]), st.integers(0, 12), st.sampled_from(["x", "y"])), max_size=60
)


@given(arrivals, st.integers(1, 6))
def test_the_guard_agrees_with_a_memory_without_bound(
    received: list[tuple[PartyId, int, str]], window: int
) -> None:
    """What is admitted is new; equivocation is raised only when there is one; memory holds one window."""
    guard, everything = ReplayGuard(window), {}
    for sender, sequence, text in received:
        known = everything.get((sender, sequence))
        try:
            guard.admit(sender, sequence, digest(text))
        except RemoteProtocolError:
            assert known not in (None, text)
        except Duplicate:
            assert known == text
        except Rejection:
            assert sequence <= max(number for party, number in everything if party == sender) - window
        else:
            assert known is None
            everything[sender, sequence] = text
    assert all(len(seen) <= window for seen in guard.snapshot().seen.values())


@given(arrivals)
def test_a_restored_guard_behaves_as_the_one_that_was_stored(
    received: list[tuple[PartyId, int, str]],
) -> None:
    guard = ReplayGuard(window=4)
    for sender, sequence, text in received:
        restored = ReplayGuard.restore(decode_record(ReplaySnapshot, encode_record(guard.snapshot())))
        assert restored.snapshot() == guard.snapshot()
        outcomes = []
        for candidate in (guard, restored):
            try:
                candidate.admit(sender, sequence, digest(text))
                outcomes.append("admitted")
            except (Rejection, RemoteProtocolError) as refusal:
                outcomes.append(str(refusal))
        assert outcomes[0] == outcomes[1]


def test_a_party_that_left_is_forgotten() -> None:
    guard = ReplayGuard()
    guard.admit(ALICE, 1, digest("one"))
    guard.forget(ALICE)
    guard.forget(BOB)
    assert not guard.snapshot().seen


@pytest.mark.parametrize("window", [0, -1, 4097])
def test_a_window_is_positive_and_bounded(window: int) -> None:
    with pytest.raises(ParameterError, match="replay window"):
        ReplayGuard(window)


@pytest.mark.parametrize(
    ("window", "numbers"), [(0, [1]), (4, [2, 1]), (4, [1, 1]), (4, [1, 5]), (4, [])], ids=str
)
def test_a_snapshot_that_no_guard_writes_is_refused(window: int, numbers: list[int]) -> None:
    seen = tuple(SeenMessage(number, digest("x")) for number in numbers)
    with pytest.raises(InvalidField):
        ReplaySnapshot(window, {ALICE: seen})


def test_a_damaged_snapshot_does_not_decode() -> None:
    guard = ReplayGuard()
    guard.admit(ALICE, 1, digest("one"))
    stored = encode_record(guard.snapshot())
    for cut in range(len(stored)):
        with pytest.raises(WireError):
            decode_record(ReplaySnapshot, stored[:cut])
