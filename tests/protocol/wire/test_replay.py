"""Every message once: duplicates are dropped, equivocation is proved, memory is bounded."""

from __future__ import annotations

import copy
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, ParameterError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.replay import START_SHIFT, STARTS_KEPT, Duplicate, ReplayWindow

ALICE, BOB = PartyId("alice"), PartyId("bob")


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def memory(replays: ReplayWindow) -> dict[PartyId, dict[int, bytes]]:
    return copy.deepcopy(replays._seen)


def test_the_same_bytes_again_are_a_duplicate() -> None:
    replays = ReplayWindow()
    replays.admit(ALICE, 7, digest("one"))
    before = memory(replays)
    with pytest.raises(Duplicate) as caught:
        replays.admit(ALICE, 7, digest("one"))
    assert caught.value.reason is AbortReason.REPLAY
    assert memory(replays) == before


def test_other_bytes_under_the_same_number_are_equivocation_by_the_sender() -> None:
    replays = ReplayWindow()
    replays.admit(ALICE, 7, digest("one"))
    before = memory(replays)
    with pytest.raises(RemoteProtocolError) as caught:
        replays.admit(ALICE, 7, digest("other"))
    assert (caught.value.culprit, caught.value.reason) == ("alice", AbortReason.EQUIVOCATION)
    assert memory(replays) == before


def test_senders_do_not_share_numbers() -> None:
    replays = ReplayWindow()
    replays.admit(ALICE, 0, digest("one"))
    replays.admit(BOB, 0, digest("two"))
    assert list(memory(replays)) == [ALICE, BOB]


def test_numbers_may_arrive_in_any_order_within_the_window() -> None:
    replays = ReplayWindow(window=4)
    for sequence in (10, 8, 9, 7):
        replays.admit(ALICE, sequence, digest(str(sequence)))
    with refusal(Rejection, 6, ALICE, "older", reason=AbortReason.REPLAY) as caught:
        replays.admit(ALICE, 6, digest("6"))
    assert not isinstance(caught.value, Duplicate)


def test_a_forgotten_number_is_never_admitted_again() -> None:
    replays = ReplayWindow(window=2)
    for sequence in (1, 2, 3):
        replays.admit(ALICE, sequence, digest(str(sequence)))
    with pytest.raises(Rejection):
        replays.admit(ALICE, 1, digest("1"))


def test_a_new_start_of_a_sender_counts_from_zero_and_ends_the_one_before_for_good() -> None:
    """Whatever the random names of its starts are: nothing is compared but whether they are the same."""
    replays, first, second = ReplayWindow(), 9 << START_SHIFT, 4 << START_SHIFT
    for sequence in (first, first + 1, second, second + 1):
        replays.admit(ALICE, sequence, digest(str(sequence)))
    before = memory(replays)
    for sequence in (first, first + 7):
        with refusal(Rejection, ALICE, "anew", reason=AbortReason.REPLAY):
            replays.admit(ALICE, sequence, digest(str(sequence)))
    assert memory(replays) == before
    replays.admit(ALICE, second + 2, digest("third"))
    replays.admit(BOB, first, digest("another sender"))


def test_the_memory_of_ended_starts_is_bounded() -> None:
    replays = ReplayWindow()
    for start in range(3 * STARTS_KEPT):
        replays.admit(ALICE, start << START_SHIFT, digest("first"))
    assert len(replays._ended[ALICE]) == STARTS_KEPT
    assert len(memory(replays)[ALICE]) == 1


arrivals = st.lists(
    st.tuples(st.sampled_from([ALICE, BOB]), st.integers(0, 12), st.sampled_from(["x", "y"])), max_size=60
)


@given(arrivals, st.integers(1, 6))
def test_the_guard_agrees_with_a_memory_without_bound(
    received: list[tuple[PartyId, int, str]], window: int
) -> None:
    """What is admitted is new; equivocation is raised only when there is one; memory holds one window."""
    replays, everything = ReplayWindow(window), {}
    for sender, sequence, text in received:
        known = everything.get((sender, sequence))
        try:
            replays.admit(sender, sequence, digest(text))
        except RemoteProtocolError:
            assert known not in (None, text)
        except Duplicate:
            assert known == text
        except Rejection:
            assert sequence <= max(number for party, number in everything if party == sender) - window
        else:
            assert known is None
            everything[sender, sequence] = text
    assert all(len(seen) <= window for seen in memory(replays).values())


@pytest.mark.parametrize("window", [0, -1, 4097])
def test_a_window_is_positive_and_bounded(window: int) -> None:
    with pytest.raises(ParameterError, match="replay window"):
        ReplayWindow(window)
