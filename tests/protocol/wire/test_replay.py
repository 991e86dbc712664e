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
from veilsum.protocol.wire.replay import Duplicate, ReplayWindow

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
