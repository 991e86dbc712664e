"""Boxes: what was sealed opens, and nothing else does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.boxes import TAG_BYTES, Channel, open_box, seal_box
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId

ALICE, BOB = PartyId("alice"), PartyId("bob")
SESSION = bytes(32)
SHARED = Secret(bytes(range(32)))
sequences = st.integers(0, 2**64 - 1)


def channel(us: PartyId = ALICE, them: PartyId = BOB, session: bytes = SESSION) -> Channel:
    return Channel(SHARED, session, us, them)


def assert_does_not_open(attempt: object, *arguments: object) -> None:
    assert callable(attempt)
    with pytest.raises(Rejection) as caught:
        attempt(*arguments)
    assert caught.value.reason is AbortReason.BAD_SEAL


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_box_opens_to_what_was_sealed(plaintext: bytes, associated: bytes) -> None:
    box = seal_box(SHARED, plaintext, associated)
    assert len(box) == len(plaintext) + TAG_BYTES
    assert open_box(SHARED, box, associated) == plaintext


@given(st.data())
def test_no_bit_of_box_or_associated_data_can_change(data: st.DataObject) -> None:
    """One flipped bit anywhere in box, associated data or key is refused as BAD_SEAL."""
    parts = [SHARED.reveal(), seal_box(SHARED, b"content", b"header"), b"header"]
    which = data.draw(st.integers(0, 2))
    bit = data.draw(st.integers(0, 8 * len(parts[which]) - 1))
    changed = int.from_bytes(parts[which], "big") ^ (1 << bit)
    parts[which] = changed.to_bytes(len(parts[which]), "big")
    key, box, associated = parts
    assert_does_not_open(open_box, Secret(key), box, associated)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_do_not_open(box: bytes) -> None:
    assert_does_not_open(open_box, SHARED, box, b"")


@given(st.lists(st.tuples(sequences, st.binary(max_size=20)), unique_by=lambda item: item[0]), st.randoms())
def test_channel_opens_after_losses_and_in_any_order(
    messages: list[tuple[int, bytes]], order: random.Random
) -> None:
    """Any subset of the sealed messages opens at the other end, in any order, more than once."""
    sender, receiver = channel(), channel(BOB, ALICE)
    sealed = [(number, text, sender.seal(number, text, b"header")) for number, text in sorted(messages)]
    order.shuffle(sealed)
    kept = sealed[: len(sealed) // 2 + 1]
    for number, text, box in kept * 2:
        assert receiver.open(number, box, b"header") == text


@given(sequences, sequences)
def test_box_opens_only_under_its_own_number(sealed: int, claimed: int) -> None:
    box = channel().seal(sealed, b"content", b"")
    if sealed == claimed:
        assert channel(BOB, ALICE).open(claimed, box, b"") == b"content"
    else:
        assert_does_not_open(channel(BOB, ALICE).open, claimed, box, b"")


def test_reflected_box_does_not_open() -> None:
    """A box sent back to its sender is refused: each direction has its own key."""
    ours = channel()
    box = ours.seal(0, b"content", b"")
    assert_does_not_open(ours.open, 0, box, b"")


def test_both_directions_may_use_one_number() -> None:
    """The same content under the same number looks different in the two directions."""
    assert channel().seal(0, b"content", b"") != channel(BOB, ALICE).seal(0, b"content", b"")


def test_box_of_another_session_or_pair_does_not_open() -> None:
    box = channel().seal(0, b"content", b"")
    assert_does_not_open(channel(BOB, ALICE, session=bytes([1]) * 32).open, 0, box, b"")
    assert_does_not_open(channel(BOB, PartyId("carol")).open, 0, box, b"")


@pytest.mark.parametrize("spent", [0, 4, 5])
def test_spent_number_is_refused_and_the_channel_goes_on(spent: int) -> None:
    """Sealing under a used or skipped number is our own mistake; the next number still works."""
    ours = channel()
    ours.seal(5, b"first", b"")
    with refusal(LocalProtocolError, "bob", 6):
        ours.seal(spent, b"second", b"")
    assert channel(BOB, ALICE).open(6, ours.seal(6, b"second", b""), b"") == b"second"


@pytest.mark.parametrize("sequence", [-1, 2**64])
def test_number_outside_64_bits_is_refused(sequence: int) -> None:
    with pytest.raises(LocalProtocolError, match="64 bits"):
        channel().seal(sequence, b"", b"")
    with pytest.raises(LocalProtocolError, match="64 bits"):
        channel().open(sequence, bytes(16), b"")


def test_channel_with_oneself_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="alice with itself"):
        channel(ALICE, ALICE)


def test_key_of_another_length_is_refused() -> None:
    for attempt in (seal_box, open_box):
        with pytest.raises(LocalProtocolError, match="not 16"):
            attempt(Secret(bytes(16)), bytes(32), b"")
