"""Tags of sums: linear in the messages up to a few multiples of five, one key for one purpose, and nothing printed."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.kdf import KeyContext
from veilsum.protocol.crypto.linear_tag import (
    LinearTags,
    attempt_key,
    group_key_id,
    value_of_zeros,
    watch_tags,
)
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection

MODULUS = 2**130 - 5
CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
GROUP_KEY = Secret(bytes(range(32)))
CONTEXT = KeyContext(session=bytes(32), round=4, attempt=2, sender="", model_hash=bytes([9]) * 32)


def value_in_integers(r: int, message: bytes) -> int:
    """RFC 8439, section 2.5, without the pad and without the reduction to 128 bits."""
    value = 0
    for start in range(0, len(message), 16):
        value = (value + int.from_bytes(message[start : start + 16] + b"\1", "little")) * r % MODULUS
    return value


@given(st.binary(min_size=16, max_size=16), st.integers(0, 200))
def test_the_value_of_zeros_needs_no_zeros(r: bytes, length: int) -> None:
    """The closed form is what Poly1305 computes, whole blocks or not."""
    clamped = int.from_bytes(r, "little") & CLAMP
    assert value_of_zeros(r, length) == value_in_integers(clamped, bytes(length))


@pytest.mark.parametrize("clamped", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 16, 17, 160])
def test_the_closed_form_holds_where_its_quotient_does_not(clamped: int, length: int) -> None:
    assert value_of_zeros(clamped.to_bytes(16, "little"), length) == value_in_integers(clamped, bytes(length))


def test_a_message_in_pieces_has_the_tag_of_the_whole() -> None:
    tags = LinearTags(Secret(bytes(32)))
    whole = bytes(range(100))
    assert tags.tag(3, [whole]) == tags.tag(3, [whole[:7], whole[7:64], b"", bytearray(whole[64:])])


def test_every_place_and_every_attempt_has_a_tag_of_its_own() -> None:
    """Session, round, attempt and model all change the tag of one message, and so does the place."""
    changes: list[dict[str, object]] = [
        {},
        {"session": bytes([1]) * 32},
        {"round": 5},
        {"attempt": 3},
        {"model_hash": bytes([8]) * 32},
    ]
    keys = [attempt_key(GROUP_KEY, dataclasses.replace(CONTEXT, **change)) for change in changes]  # type: ignore[arg-type]  # the values belong to their names
    found = {LinearTags(key).tag(place, [b"message"]) for key in keys for place in range(4)}
    assert len(found) == 4 * len(changes)


def test_the_id_of_a_group_key_is_neither_the_key_nor_that_of_another() -> None:
    assert group_key_id(GROUP_KEY) == group_key_id(Secret(GROUP_KEY.reveal()))
    assert group_key_id(GROUP_KEY) not in (GROUP_KEY.reveal(), group_key_id(Secret(bytes(32))))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    for use in (LinearTags, group_key_id, lambda key: attempt_key(key, CONTEXT)):
        with refusal(LocalProtocolError, size, 32):
            use(Secret(bytes(size)))


@pytest.mark.parametrize("places", [[], [1, 1], [-1, 2]])
def test_places_that_are_none_are_refused(places: list[int]) -> None:
    with refusal(LocalProtocolError):
        LinearTags(Secret(bytes(32))).require_sum(0, [b""], 0, places)


@pytest.mark.parametrize(("parties", "keys"), [(1, 20), (2, 100), (3, 700)])
def test_both_ends_of_the_allowed_multiples_are_reached_and_no_more_is_allowed(
    parties: int, keys: int
) -> None:
    """Honest sums differ by 5 m with every |m| below the number of parties; one multiple further is a lie."""
    messages = [bytes([k + 1] * 40) for k in range(parties)]
    total = bytes([sum(range(1, parties + 1))] * 40)
    reached = set()
    for i in range(keys):
        tags = LinearTags(Secret(i.to_bytes(32, "big")))
        added = sum(int.from_bytes(tags.tag(k, [x]), "little") for k, x in enumerate(messages))
        multiple = multiple_of(tags, messages, total)
        reached.add(multiple)
        allowed = {
            m
            for m in range(-parties - 1, parties + 2)
            if accepts(tags, added + 5 * (m - multiple), total, parties)
        }
        assert allowed == set(range(1 - parties, parties))
        assert not any(accepts(tags, added + lie, total, parties) for lie in (1, 2, 3, 4, 2**127))
    assert reached == set(range(1 - parties, parties))


def multiple_of(tags: LinearTags, messages: list[bytes], total: bytes) -> int:
    """How many times p the values of the messages exceed, together, what their sum and the zeros give."""
    r = int.from_bytes(tags._r, "little") & CLAMP
    given = sum(value_in_integers(r, message) for message in messages)
    zeros = (len(messages) - 1) * value_in_integers(r, bytes(len(total)))
    multiple, rest = divmod(value_in_integers(r, total) + zeros - given, MODULUS)
    assert rest == 0
    return multiple


def accepts(tags: LinearTags, added: int, total: bytes, parties: int) -> bool:
    try:
        tags.require_sum(added, [total], len(total), range(parties))
    except Rejection as error:
        assert error.reason is AbortReason.SUM_FALSIFIED
        return False
    return True


def test_whoever_watches_is_told_of_every_tag_and_of_one_key_for_each_place() -> None:
    """The key is the one that makes the tag (RFC 8439). To check a sum makes none; after the block nobody is told."""
    told: list[tuple[bytes, bytes]] = []
    tags = LinearTags(Secret(bytes(32)))
    with watch_tags(lambda key, tag: told.append((key.reveal(), tag))):
        made = [tags.tag(place, [message]) for place, message in [(0, b"one"), (1, b"one"), (0, b"two")]]
        tags.require_sum(int.from_bytes(made[0], "little"), [b"one"], 3, [0])
    tags.tag(0, [b"three"])
    assert [tag for _, tag in told] == made
    assert told[0][0] == told[2][0] != told[1][0]
    for (key, tag), message in zip(told, (b"one", b"one", b"two"), strict=True):
        value = value_in_integers(int.from_bytes(key[:16], "little") & CLAMP, message)
        assert int.from_bytes(tag, "little") == (value + int.from_bytes(key[16:], "little")) % 2**128
