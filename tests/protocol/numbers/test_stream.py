"""Mask streams: equal to another library's AES-CTR, independent of blocks, exact, and picky about buffers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from Crypto.Cipher import AES
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.graphs import graph as graphs
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers import stream
from veilsum.protocol.numbers.ring import Ring, RingVector, add_into
from veilsum.protocol.numbers.stream import apply_masks

rings = st.sampled_from([Ring(32), Ring(64)])
keys = st.binary(min_size=32, max_size=32)


def second_library_stream(key: bytes, ring: Ring, length: int) -> RingVector:
    cipher = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=bytes(16))
    return np.frombuffer(cipher.encrypt(bytes(length * ring.word_bytes)), dtype=ring.dtype)


def as_secrets(raw: Sequence[bytes]) -> list[Secret]:
    return [Secret(key) for key in raw]


@given(rings, st.lists(keys, max_size=4), st.lists(keys, max_size=4), st.integers(0, 700), st.data())
def test_masking_adds_and_subtracts_the_other_library_s_aes_ctr(
    ring: Ring, added: list[bytes], subtracted: list[bytes], length: int, data: st.DataObject
) -> None:
    start = np.frombuffer(data.draw(st.randoms()).randbytes(length * ring.word_bytes), dtype=ring.dtype)
    target = start.copy()
    apply_masks(ring, target, add=as_secrets(added), subtract=as_secrets(subtracted))
    expected = start.copy()
    for key in added:
        expected += second_library_stream(key, ring, length)
    for key in subtracted:
        expected -= second_library_stream(key, ring, length)
    assert np.array_equal(target, expected)


@pytest.mark.parametrize("block_bytes", [16, 24, 1 << 10, 1 << 20])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 127, 128, 129, 1000])
@pytest.mark.parametrize("bits", [32, 64])
def test_the_stream_does_not_depend_on_the_block_size(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int, length: int, bits: int
) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    ring, key = Ring(bits), bytes(range(32))
    target = ring.zeros(length)
    apply_masks(ring, target, add=[Secret(key)])
    assert np.array_equal(target, second_library_stream(key, ring, length))


@pytest.mark.parametrize("bits", [32, 64])
def test_a_vector_longer_than_one_block_is_masked_to_its_last_word(bits: int) -> None:
    ring, key = Ring(bits), bytes(range(32))
    length = stream.BLOCK_BYTES // ring.word_bytes * 2 + 3
    target = ring.zeros(length)
    apply_masks(ring, target, add=[Secret(key)])
    assert np.array_equal(target, second_library_stream(key, ring, length))


GRAPHS: dict[str, Callable[[list[PartyId]], Graph]] = {
    "complete": graphs.complete,
    "ring": graphs.ring,
    "2-regular": lambda parties: graphs.k_regular(parties, 2, bytes(32)),
    "star": lambda parties: graphs.explicit(parties, [(parties[0], other) for other in parties[1:]]),
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("count", range(3, 13))
def test_masks_cancel_for_every_number_of_parties_graph_and_word_size(
    name: str, count: int, bits: int
) -> None:
    ring = Ring(bits)
    parties = [PartyId(f"p{i:02}") for i in range(count)]
    graph = GRAPHS[name](parties)
    edge_keys = {edge: Secret(bytes([i]) * 32) for i, edge in enumerate(graph.edges())}
    held = np.arange(count * 33, dtype=ring.dtype).reshape(count, 33)
    total = ring.zeros(33)
    for row, party in zip(held, parties, strict=True):
        upload = row.copy()
        apply_masks(
            ring,
            upload,
            add=[key for (one, _), key in edge_keys.items() if one == party],
            subtract=[key for (_, other), key in edge_keys.items() if other == party],
        )
        assert not np.array_equal(upload, row)
        add_into(total, upload)
    assert np.array_equal(total, held.sum(axis=0, dtype=ring.dtype))


@given(
    rings, keys, st.integers(1, 64), st.sampled_from(["bytearray", "memoryview", "uint8", "int64", "float32"])
)
def test_every_writable_contiguous_buffer_gets_the_same_bytes(
    ring: Ring, key: bytes, words: int, kind: str
) -> None:
    start = bytes(itertools.islice(itertools.cycle(range(251)), words * 8))
    target: Any = bytearray(start)
    if kind == "memoryview":
        target = memoryview(target)
    elif kind != "bytearray":
        target = np.frombuffer(target, dtype=kind)
    apply_masks(ring, target, add=[Secret(key)])
    expected = np.frombuffer(start, ring.dtype) + second_library_stream(
        key, ring, len(start) // ring.word_bytes
    )
    assert memoryview(target).tobytes() == expected.tobytes()


def test_a_read_only_buffer_is_refused_and_unchanged() -> None:
    target = np.arange(4, dtype=np.uint64)
    target.flags.writeable = False
    with pytest.raises(LocalProtocolError, match="writable"):
        apply_masks(Ring(64), target, add=[Secret(bytes(32))])
    assert target.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_key_of_another_length_is_refused_before_anything_changes(length: int) -> None:
    target = Ring(64).zeros(4)
    with refusal(LocalProtocolError, 32, length):
        apply_masks(Ring(64), target, add=[Secret(bytes(32))], subtract=[Secret(bytes(length))])
    assert not target.any()
