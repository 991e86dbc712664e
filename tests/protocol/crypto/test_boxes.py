"""Boxes: what was sealed opens, and nothing else does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.aead import TAG_BYTES, watch_seals
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.lines import LineEnds, LineKeys
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId

ALICE, BOB = PartyId("alice"), PartyId("bob")
TRANSCRIPT = bytes(32)
SHARED = Secret(bytes(range(32)))
sequences = st.integers(0, 2**32 - 1)


def line(us: PartyId = ALICE, them: PartyId = BOB, transcript: bytes = TRANSCRIPT) -> LineKeys:
    return LineKeys(SHARED, transcript, us, them)


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
def test_line_opens_after_losses_and_in_any_order(
    messages: list[tuple[int, bytes]], order: random.Random
) -> None:
    """Any subset of the sealed messages opens at the other end, in any order, more than once."""
    sender, receiver = line(), line(BOB, ALICE)
    sealed = [(number, text, sender.seal(number, text, b"header")) for number, text in sorted(messages)]
    order.shuffle(sealed)
    kept = sealed[: len(sealed) // 2 + 1]
    for number, text, box in kept * 2:
        assert receiver.open(number, box, b"header") == text


@given(sequences, sequences)
def test_box_opens_only_under_its_own_number(sealed: int, claimed: int) -> None:
    box = line().seal(sealed, b"content", b"")
    if sealed == claimed:
        assert line(BOB, ALICE).open(claimed, box, b"") == b"content"
    else:
        assert_does_not_open(line(BOB, ALICE).open, claimed, box, b"")


def test_reflected_box_does_not_open() -> None:
    """A box sent back to its sender is refused: each direction has its own key."""
    ours = line()
    box = ours.seal(0, b"content", b"")
    assert_does_not_open(ours.open, 0, box, b"")


def test_both_directions_may_use_one_number() -> None:
    """The same content under the same number looks different in the two directions."""
    assert line().seal(0, b"content", b"") != line(BOB, ALICE).seal(0, b"content", b"")


def test_box_of_another_transcript_or_pair_does_not_open() -> None:
    box = line().seal(0, b"content", b"")
    assert_does_not_open(line(BOB, ALICE, transcript=bytes([1]) * 32).open, 0, box, b"")
    assert_does_not_open(line(BOB, PartyId("carol")).open, 0, box, b"")


@pytest.mark.parametrize("spent", [0, 4, 5])
def test_spent_number_is_refused_and_the_line_goes_on(spent: int) -> None:
    """Sealing under a used or skipped number is our own mistake; the next number still works."""
    ours = line()
    ours.seal(5, b"first", b"")
    with refusal(LocalProtocolError, spent, 6):
        ours.seal(spent, b"second", b"")
    assert line(BOB, ALICE).open(6, ours.seal(6, b"second", b""), b"") == b"second"


@pytest.mark.parametrize("sequence", [-1, 2**32])
def test_number_beyond_the_boxes_of_a_line_is_refused(sequence: int) -> None:
    with pytest.raises(LocalProtocolError, match="4294967296 boxes"):
        line().seal(sequence, b"", b"")
    with pytest.raises(LocalProtocolError, match="4294967296 boxes"):
        line().open(sequence, bytes(16), b"")


def test_line_with_oneself_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="alice with itself"):
        LineEnds(b"federation", ALICE, ALICE)


def test_whoever_watches_is_told_of_every_key_and_nonce_before_it_is_used() -> None:
    """A watcher that raises prevents the box; after the block nobody is told any more."""
    told: list[tuple[bytes, bytes]] = []

    def watcher(key: Secret, nonce: bytes) -> None:
        told.append((key.reveal(), nonce))
        if len(told) > 2:
            raise LocalProtocolError("enough")

    ours = line()
    with watch_seals(watcher):
        seal_box(SHARED, b"", b"")
        ours.seal(3, b"", b"")
        with pytest.raises(LocalProtocolError, match="enough"):
            ours.seal(4, b"", b"")
    seal_box(SHARED, b"", b"")
    assert [nonce for _, nonce in told] == [bytes(12), bytes(11) + b"\3", bytes(11) + b"\4"]
    assert told[0][0] == SHARED.reveal() != told[1][0] == told[2][0]
