"""The weighted mean of the vectors that a server may see one by one, in float64.

Vectors are added in the order they are given in, so that callers who sort get the same bits every time. The sum is
formed block by block: a block and its widened copy stay in the processor's cache while all vectors are added to
it, and no vector is widened as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import LocalProtocolError

BLOCK = 1 << 15


def weighted_mean(
    vectors: Sequence[NDArray[np.floating[Any]]], weights: Sequence[float]
) -> NDArray[np.float64]:
    """The mean of real vectors, each as heavy as its weight."""
    total = sum(weights)
    if not vectors or len(vectors) != len(weights) or not total > 0 or min(weights) < 0:
        raise LocalProtocolError(
            "a weighted mean needs one non-negative weight per vector and a positive sum"
        )
    mean = np.zeros(len(vectors[0]))
    widened = np.empty(min(BLOCK, len(mean)))
    for start in range(0, len(mean), BLOCK):
        block = slice(start, start + BLOCK)
        place = mean[block]
        summand = widened[: len(place)]
        for vector, weight in zip(vectors, weights, strict=True):
            np.copyto(summand, vector[block])
            summand *= weight
            place += summand
        place /= total
    return mean
