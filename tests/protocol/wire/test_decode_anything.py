"""Whatever arrives, decoding gives a message or a typed error, for a small multiple of the input's memory."""

from __future__ import annotations

import importlib
import pkgutil
import struct
import tracemalloc
from collections.abc import Callable

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilsum.protocol
from tests.support.make_vectors_envelope import good_envelope
from tests.support.make_vectors_wire import good_messages
from tests.support.wire_examples import Boxes, Everything, MaskedInput, RoundKeys
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.defects import WireError
from veilsum.protocol.wire.envelope import decode_envelope, encode_envelope, join
from veilsum.protocol.wire.messages import Message, Stamp, kind_of, registered_messages
from veilsum.simulations.testing import message_strategy

STAMP = Stamp(bytes(32))
EXAMPLES = [Everything, Boxes, MaskedInput, RoundKeys]

# The densest value of our examples is a party name of two letters: three bytes become a string of 51 bytes
# and a few pointers. The constant is the unpacker's own, whatever the input.
MULTIPLE = 32
CONSTANT = 64 * 1024


def _import_all_messages() -> None:
    """Schemes register their messages on import; perturbation/ is left out because it loads torch."""
    for module in pkgutil.walk_packages(veilsum.protocol.__path__, "veilsum.protocol."):
        if "perturbation" not in module.name:
            importlib.import_module(module.name)


_import_all_messages()
ALL_MESSAGES = sorted(registered_messages().values(), key=kind_of)


def refused_or_canonical(kind: str, data: bytes) -> None:
    try:
        message = decode_message(kind, STAMP, data)
    except WireError:
        return
    assert b"".join(encode_message(message)) == data


def body_of(message: Message) -> bytes:
    return b"".join(encode_message(message))


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.binary(), inner), max_leaves=20
)


@given(st.sampled_from(EXAMPLES), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_typed_error(cls: type[Message], data: bytes) -> None:
    refused_or_canonical(kind_of(cls), data)
    refused_or_canonical(kind_of(cls), struct.pack("<I", len(data)) + data)


@given(st.sampled_from(EXAMPLES), trees, st.binary(max_size=16))
def test_any_msgpack_is_a_message_or_a_typed_error(cls: type[Message], tree: object, tail: bytes) -> None:
    fields = msgpack.packb(tree)
    refused_or_canonical(kind_of(cls), struct.pack("<I", len(fields)) + fields + tail)


@given(st.sampled_from(list(good_messages().values())), st.data())
def test_a_mutated_message_is_a_message_or_a_typed_error(message: Message, data: st.DataObject) -> None:
    mutated = bytearray(body_of(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated)))
        removed = data.draw(st.integers(0, 4))
        mutated[at : at + removed] = data.draw(st.binary(max_size=4))
    refused_or_canonical(kind_of(message), bytes(mutated))


@given(st.data())
def test_a_mutated_envelope_is_an_envelope_or_a_typed_error(data: st.DataObject) -> None:
    mutated = bytearray(join(encode_envelope(good_envelope())))
    at = data.draw(st.integers(0, len(mutated)))
    mutated[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        envelope = decode_envelope(mutated)
    except WireError:
        return
    assert join(encode_envelope(envelope)) == mutated


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_an_envelope_or_a_typed_error(data: bytes, plausible: bool) -> None:
    start = b"VSUM\x01\x00\x01\x00" if plausible else b""
    try:
        envelope = decode_envelope(start + data)
    except WireError:
        return
    assert join(encode_envelope(envelope)) == start + data


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=kind_of)
@settings(max_examples=15)
@given(st.data())
def test_every_registered_message_survives_the_round_trip(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(message_strategy(cls))
    assert decode_message(kind_of(cls), message.stamp, body_of(message)) == message


def fields(packed: bytes) -> bytes:
    return struct.pack("<I", len(packed)) + packed


def array_of(count: int, item: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + count * item


SIZE, MANY = 2**20, 10_000
BOMBS: dict[str, tuple[str, bytes]] = {
    "empty maps in an array": ("example.everything", fields(b"\x81\xa6counts" + array_of(SIZE, b"\x80"))),
    "empty maps where an integer belongs": ("example.everything", fields(b"\x81\xa5count" + b"\x80" * SIZE)),
    "empty arrays, many at each of two depths": (
        "example.everything",
        fields(b"\x81\xa5order" + array_of(1024, array_of(1024, b"\x90"))),
    ),
    "nesting": ("example.everything", fields(b"\x81\xa5order" + b"\x91" * SIZE)),
    "many short party names": ("example.everything", fields(b"\x81\xa5order" + array_of(MANY, b"\xa2ab"))),
    "many small records": (
        "example.everything",
        fields(b"\x81\xa6shares\x81\xa1a" + array_of(MANY, b"\x93\xa1a\x00\xc0")),
    ),
    "one huge byte string": (
        "example.round-keys",
        fields(b"\x81\xa3key\xc6" + struct.pack(">I", SIZE) + bytes(SIZE)),
    ),
    "a byte string that is announced only": (
        "example.round-keys",
        fields(b"\x81\xa3key\xc6\xff\xff\xff\xff"),
    ),
    "a tensor that is announced only": (
        "example.masked-input",
        fields(b"\x81\xa6vector\x92\xa3<u8\xcf" + b"\xff" * 8),
    ),
    "unknown fields": ("example.round-keys", fields(array_of(SIZE, b"\x80"))),
    "a tensor that is there": ("example.masked-input", body_of(MaskedInput(STAMP, np.zeros(SIZE, "<u8")))),
}


def peak_while(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("bomb", BOMBS)
def test_decoding_allocates_no_more_than_a_small_multiple_of_its_input(bomb: str) -> None:
    kind, data = BOMBS[bomb]
    peak = peak_while(lambda: refused_or_canonical(kind, data))
    assert peak <= CONSTANT + MULTIPLE * len(data), f"{peak / len(data):.0f} times the input"


@settings(max_examples=50)
@given(st.sampled_from(EXAMPLES), st.binary(max_size=2000))
def test_random_fields_allocate_no_more_than_a_small_multiple(cls: type[Message], data: bytes) -> None:
    peak = peak_while(lambda: refused_or_canonical(kind_of(cls), fields(data)))
    assert peak <= CONSTANT + MULTIPLE * len(data)


def test_decoding_a_large_tensor_allocates_next_to_nothing() -> None:
    body = BOMBS["a tensor that is there"][1]
    assert peak_while(lambda: decode_message("example.masked-input", STAMP, body)) < CONSTANT
