"""A hash tree: one signature over its root covers many digests, and each can be shown alone with a short path.

A path of m siblings leads from a leaf to the root of up to 2^m leaves. The two children of a node are hashed in
the order of their bytes, so a path needs no directions, and whoever follows one needs to know neither the place of
its leaf nor how many there are. That is sound where a leaf says itself what it is about, which is up to the caller. A
node without a sibling goes up as it is. Nodes have a domain of their own, so that no node passes for a leaf.

Implements specs/protocol.md, section 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed


class MerkleTree:
    """The tree over these digests, of which there is at least one."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self._layers = [list(leaves)]
        while len(self._layers[-1]) > 1:
            below = self._layers[-1]
            pairs = [_node(*below[at : at + 2]) for at in range(0, len(below) - 1, 2)]
            self._layers.append(pairs + below[2 * len(pairs) :])

    @property
    def root(self) -> bytes:
        return self._layers[-1][0]

    def path_from(self, place: int) -> tuple[bytes, ...]:
        """The siblings on the way from the leaf at this place to the root."""
        path = []
        for layer in self._layers:
            sibling = place ^ 1
            if sibling < len(layer):
                path.append(layer[sibling])
            place //= 2
        return tuple(path)


def root_above(leaf: bytes, path: Iterable[bytes]) -> bytes:
    """The root of the tree that the leaf stands in, if this is its path."""
    for sibling in path:
        leaf = _node(leaf, sibling)
    return leaf


def _node(left: bytes, right: bytes) -> bytes:
    framed = length_prefixed(domain_tag("merkle-node"), *sorted((left, right)))
    return hashlib.sha256(framed).digest()
