"""Entropy: a seeded source repeats, is separate per party, and is refused where keys are real."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.process.entropy import SeededEntropy, require_real_entropy, system_entropy

seeds = st.integers() | st.binary(max_size=8)


@given(seeds, st.lists(st.integers(0, 40), max_size=6))
def test_same_seed_gives_the_same_bytes_however_they_are_drawn(seed: int | bytes, sizes: list[int]) -> None:
    """Many small draws give the bytes of one large draw."""
    source = SeededEntropy(seed)
    pieces = [source(size) for size in sizes]
    assert [len(piece) for piece in pieces] == sizes
    assert b"".join(pieces) == SeededEntropy(seed)(sum(sizes))


@given(seeds, seeds)
def test_different_seeds_give_different_bytes(left: int | bytes, right: int | bytes) -> None:
    assert (SeededEntropy(left)(32) == SeededEntropy(right)(32)) == (left == right)


def test_party_source_depends_on_seed_and_name_only() -> None:
    """What was drawn before does not matter; names, seeds and the parent's own stream are all separate."""
    source = SeededEntropy(7)
    early = source.for_party("alice")(32)
    source(1000)
    assert source.for_party("alice")(32) == early
    others = [source.for_party("bob"), SeededEntropy(8).for_party("alice"), SeededEntropy(7)]
    assert len({early, *(other(32) for other in others)}) == 4


def test_stream_is_pinned() -> None:
    """Seeded runs repeat across machines and releases of one protocol version."""
    assert SeededEntropy(0).for_party("alice")(16).hex() == "6568744e5bfa8ea798d1772d4b3ced51"


def test_role_processes_refuse_a_seeded_source() -> None:
    assert require_real_entropy(system_entropy) is system_entropy
    with pytest.raises(LocalProtocolError, match="simulations only"):
        require_real_entropy(SeededEntropy(1))
    with pytest.raises(LocalProtocolError, match="simulations only"):
        require_real_entropy(SeededEntropy(1).for_party("alice"))


def test_system_source_gives_fresh_bytes() -> None:
    assert len(system_entropy(32)) == 32
    assert system_entropy(32) != system_entropy(32)
