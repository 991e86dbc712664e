"""Transcripts: equal digests exactly for equal histories, and no step changes an older value."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.transcript import Transcript

histories = st.lists(
    st.tuples(st.text(alphabet="ab", max_size=3), st.binary(max_size=3) | st.just(bytes(32))), max_size=4
)


def replay(start: str, history: list[tuple[str, bytes]]) -> Transcript:
    transcript = Transcript.start(start)
    for label, data in history:
        transcript = transcript.absorb(label, data)
    return transcript


@given(histories, histories)
def test_digests_are_equal_exactly_for_equal_histories(
    left: list[tuple[str, bytes]], right: list[tuple[str, bytes]]
) -> None:
    assert (replay("session", left) == replay("session", right)) == (left == right)


@given(histories, st.text(max_size=5), st.binary(max_size=5))
def test_absorbing_leaves_the_old_transcript_unchanged(
    history: list[tuple[str, bytes]], label: str, data: bytes
) -> None:
    before = replay("session", history)
    digest = before.digest
    after = before.absorb(label, data)
    assert before.digest == digest != after.digest


def test_start_label_separates_transcripts() -> None:
    assert Transcript.start("session") != Transcript.start("round")
    assert replay("session", [("a", b"")]) != replay("round", [("a", b"")])


def test_digest_cannot_be_assigned() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Transcript.start("session").digest = bytes(32)  # type: ignore[misc]  # the assignment is the test
