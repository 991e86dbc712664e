"""One root covers all leaves of a tree, each is shown by a short path, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.transcription import stored_vectors
from veilsum.protocol.crypto.merkle import MerkleTree, root_above

LEAVES = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40, unique=True)


@pytest.mark.parametrize("case", stored_vectors("merkle")["cases"])
def test_roots_and_paths_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    tree = MerkleTree([bytes.fromhex(leaf) for leaf in case["leaves"]])
    assert tree.root.hex() == case["root"]
    paths = [[one.hex() for one in tree.path_from(place)] for place in range(len(case["leaves"]))]
    assert paths == case["paths"]


@given(LEAVES)
def test_every_path_leads_to_the_root_and_is_short(leaves: list[bytes]) -> None:
    tree = MerkleTree(leaves)
    for place, leaf in enumerate(leaves):
        path = tree.path_from(place)
        assert root_above(leaf, path) == tree.root
        assert len(path) <= (len(leaves) - 1).bit_length()


@given(LEAVES, st.data())
def test_another_leaf_or_a_changed_path_leads_elsewhere(leaves: list[bytes], data: st.DataObject) -> None:
    tree, place = MerkleTree(leaves), data.draw(st.integers(0, len(leaves) - 1))
    path = list(tree.path_from(place))
    other = data.draw(st.binary(min_size=32, max_size=32).filter(lambda one: one not in leaves))
    assert root_above(other, path) != tree.root
    if path:
        at = data.draw(st.integers(0, len(path) - 1))
        assert root_above(leaves[place], [*path[:at], other, *path[at + 1 :]]) != tree.root
        assert root_above(leaves[place], path[:-1]) != tree.root


@given(LEAVES.filter(lambda leaves: len(leaves) > 1), st.data())
def test_a_changed_leaf_changes_the_root(leaves: list[bytes], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(leaves) - 1))
    other = data.draw(st.binary(min_size=32, max_size=32).filter(lambda one: one not in leaves))
    assert MerkleTree([*leaves[:place], other, *leaves[place + 1 :]]).root != MerkleTree(leaves).root
