"""Tell two models apart after perturbation: the sign of every hidden weight survives a positive factor.

This is the game of semantic security, and it is won with certainty by looking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.floating[Any]]


def distinguish(candidates: Sequence[Reals], perturbed: Reals) -> int:
    """Which candidate was perturbed, by agreement of signs over the given entries."""
    agreements = [np.mean(np.sign(candidate) == np.sign(perturbed)) for candidate in candidates]
    return int(np.argmax(agreements))
